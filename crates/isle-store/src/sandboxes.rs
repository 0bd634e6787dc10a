//! The journal of sandboxes: a row is stored before anything is created and deleted after everything was
//! removed, so that an operation can be completed or undone after a crash at any point.

use rusqlite::{Connection, Row, ToSql, params};
use serde_json::Value;

use crate::audit::{AuditEntry, append};
use crate::error::{StoreError, violates_unique};
use crate::records::{SandboxChange, SandboxRow};
use crate::store::Store;

impl Store {
    /// Stores a sandbox that is about to be created. At most one sandbox of a name is `creating` or
    /// `running`.
    pub fn insert_sandbox(&self, row: &SandboxRow) -> Result<(), StoreError> {
        self.write(|writer| insert(&writer.connection, row))
    }

    /// Stores a sandbox that was found, together with an audit row.
    pub fn insert_sandbox_audited(&self, row: &SandboxRow, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                insert(connection, row)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Changes a sandbox's record.
    pub fn update_sandbox(&self, id: &str, change: SandboxChange) -> Result<(), StoreError> {
        self.write(|writer| update(&writer.connection, id, &change))
    }

    /// Changes a sandbox's record and adds an audit row in one transaction.
    pub fn update_sandbox_audited(
        &self,
        id: &str,
        change: SandboxChange,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                update(connection, id, &change)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes failed sandboxes of the same name, which this one replaces.
    pub fn forget_replaced(&self, id: &str) -> Result<(), StoreError> {
        self.write(|writer| remove_failed_namesakes(&writer.connection, id))
    }

    /// Sets the name of a recorded sandbox.
    pub fn rename_sandbox(&self, id: &str, name: &str) -> Result<(), StoreError> {
        self.write(|writer| {
            let text = "UPDATE sandboxes SET name = ?2 WHERE id = ?1";
            writer.connection.execute(text, (id, name)).map(drop).map_err(Into::into)
        })
    }

    /// Deletes a sandbox. One that is not recorded is not an error: a crash may have come between.
    pub fn remove_sandbox(&self, id: &str) -> Result<(), StoreError> {
        self.write(|writer| remove(&writer.connection, id))
    }

    /// Deletes a destroyed sandbox and remaining records of those it replaced, and adds an audit row, in one
    /// transaction.
    pub fn destroy_sandbox_audited(&self, id: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                remove_failed_namesakes(connection, id)?;
                remove(connection, id)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a sandbox and adds an audit row in one transaction.
    pub fn remove_sandbox_audited(&self, id: &str, audit: &AuditEntry) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                remove(connection, id)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Deletes a sandbox and the variables of its name, and adds an audit row, in one transaction.
    pub fn wipe_sandbox_audited(
        &self,
        id: &str,
        address: &str,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.write(|writer| {
            writer.transaction(|connection, draft| {
                remove_failed_namesakes(connection, id)?;
                remove(connection, id)?;
                crate::variables::forget(connection, address)?;
                crate::secrets::forget_uses(connection, address)?;
                crate::spawn_counts::forget(connection, address)?;
                crate::wipes::forget(connection, address)?;
                append(connection, draft, audit).map(drop)
            })
        })
    }

    /// Every recorded sandbox, oldest first.
    pub fn sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, name, kind, state, spec, fingerprint, anchor, containment, created_at_ms,
                     last_used_ms, namespace, lease
                 FROM sandboxes ORDER BY created_at_ms, id",
            )?;
            let mut rows = statement.query([])?;
            let mut sandboxes = Vec::new();
            while let Some(row) = rows.next()? {
                sandboxes.push(sandbox(row)?);
            }
            Ok(sandboxes)
        })
    }
}

fn remove_failed_namesakes(connection: &Connection, id: &str) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(
        "DELETE FROM sandboxes WHERE state = 'failed' AND id <> ?1
         AND (namespace, name) = (SELECT namespace, name FROM sandboxes WHERE id = ?1)",
    )?;
    statement.execute(params![id])?;
    Ok(())
}

fn insert(connection: &Connection, row: &SandboxRow) -> Result<(), StoreError> {
    check_kind(&row.kind)?;
    check_state(&row.state)?;
    let mut statement = connection.prepare_cached(
        "INSERT INTO sandboxes (id, name, kind, state, spec, fingerprint, anchor, containment,
             created_at_ms, last_used_ms, namespace, lease)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
    )?;
    let inserted = statement.execute(params![
        row.id,
        row.name,
        row.kind,
        row.state,
        row.spec.to_string(),
        row.fingerprint,
        row.anchor.to_string(),
        row.containment.to_string(),
        row.created_at_ms,
        row.last_used_ms,
        row.namespace,
        (!row.lease.is_null()).then(|| row.lease.to_string()),
    ]);
    match inserted {
        Ok(_) => Ok(()),
        Err(error) if violates_unique(&error, "sandboxes.name") => {
            Err(StoreError::NameTaken { name: row.name.clone().unwrap_or_default() })
        }
        Err(error) if violates_unique(&error, "sandboxes.id") => {
            Err(StoreError::DuplicateId { id: row.id.clone() })
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn update(connection: &Connection, id: &str, change: &SandboxChange) -> Result<(), StoreError> {
    if let Some(state) = &change.state {
        check_state(state)?;
    }
    let anchor = change.anchor.as_ref().map(Value::to_string);
    let spec = change.spec.as_ref().map(Value::to_string);
    let containment = change.containment.as_ref().map(Value::to_string);
    let lease = change.lease.as_ref().map(Value::to_string);
    // Only the columns that change are set: setting `state` would update its index as well.
    let fields: [(&str, Option<&dyn ToSql>); 6] = [
        ("state", change.state.as_ref().map(|value| value as &dyn ToSql)),
        ("anchor", anchor.as_ref().map(|value| value as &dyn ToSql)),
        ("spec", spec.as_ref().map(|value| value as &dyn ToSql)),
        ("containment", containment.as_ref().map(|value| value as &dyn ToSql)),
        ("last_used_ms", change.last_used_ms.as_ref().map(|value| value as &dyn ToSql)),
        ("lease", lease.as_ref().map(|value| value as &dyn ToSql)),
    ];
    let mut assignments = vec!["id = ?1".to_owned()];
    let mut values: Vec<&dyn ToSql> = vec![&id];
    for (column, value) in fields {
        if let Some(value) = value {
            values.push(value);
            assignments.push(format!("{column} = ?{}", values.len()));
        }
    }
    if values.len() > 1 {
        assignments.remove(0);
    }
    let text = format!("UPDATE sandboxes SET {} WHERE id = ?1", assignments.join(", "));
    match connection.prepare_cached(&text)?.execute(values.as_slice()) {
        Ok(0) => Err(StoreError::SandboxNotFound { id: id.to_owned() }),
        Ok(_) => Ok(()),
        Err(error) if violates_unique(&error, "sandboxes.name") => {
            let name =
                connection
                    .query_row("SELECT name FROM sandboxes WHERE id = ?1", params![id], |row| row.get(0))?;
            Err(StoreError::NameTaken { name })
        }
        Err(error) => Err(error.into()),
    }
}

fn remove(connection: &Connection, id: &str) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM sandboxes WHERE id = ?1")?.execute(params![id])?;
    Ok(())
}

fn sandbox(row: &Row<'_>) -> Result<SandboxRow, StoreError> {
    let json = |column: usize| -> Result<Value, StoreError> {
        Ok(serde_json::from_str(row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?)?)
    };
    Ok(SandboxRow {
        id: row.get(0)?,
        name: row.get(1)?,
        kind: row.get(2)?,
        state: row.get(3)?,
        spec: json(4)?,
        fingerprint: row.get(5)?,
        anchor: json(6)?,
        containment: json(7)?,
        created_at_ms: row.get(8)?,
        last_used_ms: row.get(9)?,
        namespace: row.get(10)?,
        lease: match row.get_ref(11)? {
            rusqlite::types::ValueRef::Null => Value::Null,
            _ => json(11)?,
        },
    })
}

fn check_kind(kind: &str) -> Result<(), StoreError> {
    match kind {
        "named" | "one_shot" => Ok(()),
        other => Err(StoreError::UnknownWord {
            what: "kind of sandbox",
            value: other.to_owned(),
            known: "named, one_shot",
        }),
    }
}

fn check_state(state: &str) -> Result<(), StoreError> {
    match state {
        "creating" | "running" | "failed" | "destroying" => Ok(()),
        other => Err(StoreError::UnknownWord {
            what: "state of a sandbox",
            value: other.to_owned(),
            known: "creating, running, failed, destroying",
        }),
    }
}
