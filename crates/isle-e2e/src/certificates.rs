//! Certificates for servers of tests, made by the host's `openssl`.

use std::path::Path;
use std::process::Command;

use crate::home::finish;

/// A shell script in a directory, which has to succeed.
pub fn sh(directory: &Path, script: &str) {
    let done = finish(Command::new("sh").args(["-ec", script]).current_dir(directory));
    assert!(done.status.success(), "{script}: {done:?}");
}

/// Makes an authority (`ca.pem`, `ca.key`) in a directory, and a certificate by it for a host (`cert.pem`,
/// `key.pem`).
pub fn certificate_for(directory: &Path, host: &str) {
    let script = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
             -subj '/CN=Test authority' -keyout ca.key -out ca.pem
         openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj '/CN={host}' \
             -keyout key.pem -out request.pem
         echo 'subjectAltName=DNS:{host}' > extensions
         openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
             -extfile extensions -out cert.pem"
    );
    sh(directory, &script);
}
