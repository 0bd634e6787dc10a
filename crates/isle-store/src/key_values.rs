//! Small values by key, such as limits that were changed at run time.

use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// The value of a key, if there is one.
    pub fn get_value(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT value FROM facts WHERE key = ?1")?;
            Ok(statement.query_row(params![key], |row| row.get(0)).optional()?)
        })
    }

    /// Sets the value of a key.
    pub fn set_value(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.write(|writer| {
            let mut statement = writer.connection.prepare_cached(
                "INSERT INTO facts (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )?;
            statement.execute(params![key, value])?;
            Ok(())
        })
    }
}
