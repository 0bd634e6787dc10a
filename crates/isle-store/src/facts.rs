//! Small facts by key, such as the id of this installation.

use rusqlite::{OptionalExtension, params};

use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// A fact, when it is known.
    pub fn get_fact(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT value FROM facts WHERE key = ?1")?;
            Ok(statement.query_row(params![key], |row| row.get(0)).optional()?)
        })
    }

    /// Sets a fact, over what it was.
    pub fn set_fact(&self, key: &str, value: &str) -> Result<(), StoreError> {
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
