//! The network grants of all sandboxes of a namespace.

use rusqlite::params;
use serde_json::Value;

use crate::audit::{AuditEntry, append};
use crate::error::StoreError;
use crate::store::Store;

impl Store {
    /// Namespaces with grants, and the grants.
    pub fn namespace_grants(&self) -> Result<Vec<(String, Value)>, StoreError> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT namespace, grants FROM namespace_grants")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
            let rows: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
            // A malformed value grants nothing.
            let value = |text: &str| serde_json::from_str(text).unwrap_or_default();
            Ok(rows.into_iter().map(|(namespace, grants)| (namespace, value(&grants))).collect())
        })
    }

    /// Changes the grants of a namespace and adds an audit row in one transaction.
    pub fn set_namespace_grants(
        &self,
        namespace: &str,
        grants: &Value,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                let mut statement = connection.prepare_cached(
                    "INSERT INTO namespace_grants (namespace, grants) VALUES (?1, ?2)
                     ON CONFLICT (namespace) DO UPDATE SET grants = ?2",
                )?;
                statement.execute(params![namespace, grants.to_string()])?;
                append(connection, draft, audit).map(drop)
            })
        })
    }
}
