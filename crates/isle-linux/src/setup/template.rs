//! The lowest layer of image `host`: a root directory with a clean `/etc` and links, made once per
//! fork server in memory. Only world-readable files of the host's `/etc` that programs need and
//! that hold nothing private are copied.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Copied from the host's `/etc` when they exist: what the dynamic loader, TLS, terminals, time
/// zones, fonts and language runtimes look up.
const FROM_HOST: &[&str] = &[
    "alternatives",
    "bash_completion.d",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "default/locale",
    "ethertypes",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "matplotlibrc",
    "mime.types",
    "nanorc",
    "networks",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/java",
    "pki/tls/certs",
    "profile",
    "profile.d",
    "protocols",
    "rpc",
    "screenrc",
    "services",
    "shells",
    "skel",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "vim",
    "wgetrc",
    "xattr.conf",
];

/// The same for those that have a version in their names, which begin so.
const VERSIONED: &[&str] = &["java-", "python3"];

/// Names of what is shown of the directory `etc` of the host.
pub(super) fn from_host(etc: &Path) -> Vec<String> {
    let entries = fs::read_dir(etc).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let versioned = names.filter(|name| VERSIONED.iter().any(|begin| name.starts_with(begin)));
    FROM_HOST.iter().map(|name| (*name).to_owned()).chain(versioned).collect()
}

/// Files of our own. A sandbox that may have a root gets them afresh, so that it may change them.
pub const OWN_ETC: &[(&str, &str)] = &[
    (
        "passwd",
        "root:x:0:0:root:/root:/bin/bash\n\
         daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n\
         bin:x:2:2:bin:/bin:/usr/sbin/nologin\n\
         sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\ndaemon:x:1:\nbin:x:2:\ntty:x:5:\nsandbox:x:1000:\nnogroup:x:65534:\n"),
    ("hostname", "isle\n"),
    ("hosts", "127.0.0.1 localhost isle\n::1 localhost ip6-localhost ip6-loopback\n"),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    ),
    (
        "resolv.conf",
        // Answers come at once, unless a person is asked first: programs wait half a minute for that.
        "# Granted names only.\n\
         nameserver 127.0.0.53\noptions timeout:10 attempts:3\n",
    ),
];

/// Links from the root into `/usr`, on hosts where they are links.
const ROOT_LINKS: &[&str] = &["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Directories every root has.
const ROOT_DIRECTORIES: &[&str] = &[
    "dev",
    "etc",
    "home",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "workspace",
];

/// Directories of the host that are shown read-only: `/usr`, and those of `/bin` and its like that
/// are real directories.
#[must_use]
pub fn system_directories() -> Vec<String> {
    let mut found = vec!["usr".to_owned()];
    found.extend(
        ROOT_LINKS
            .iter()
            .filter(|name| fs::symlink_metadata(Path::new("/").join(name)).is_ok_and(|meta| meta.is_dir()))
            .map(|name| (*name).to_owned()),
    );
    found
}

/// Builds the layer in `target`, an empty directory, from the host seen at `host`.
pub fn build(host: &Path, target: &Path) -> io::Result<()> {
    let make = |path: &Path, mode: u32| fs::DirBuilder::new().mode(mode).recursive(true).create(path);
    for directory in ROOT_DIRECTORIES {
        make(&target.join(directory), 0o755)?;
    }
    make(&target.join("var/lib"), 0o755)?;
    make(&target.join("var/cache"), 0o755)?;
    make(&target.join("var/log"), 0o755)?;
    symlink("/run", target.join("var/run"))?;
    for name in ROOT_LINKS {
        let source = host.join(name);
        match fs::symlink_metadata(&source) {
            Ok(meta) if meta.is_symlink() => symlink(fs::read_link(&source)?, target.join(name))?,
            Ok(meta) if meta.is_dir() => make(&target.join(name), 0o755)?,
            Ok(_) | Err(_) => {}
        }
    }
    let etc = target.join("etc");
    for name in from_host(&host.join("etc")) {
        let (source, destination) = (host.join("etc").join(&name), etc.join(&name));
        if fs::symlink_metadata(&source).is_err() {
            continue;
        }
        if let Some(parent) = destination.parent() {
            make(parent, 0o755)?;
        }
        copy_readable(&source, &destination, 4)?;
    }
    symlink("/proc/mounts", etc.join("mtab"))?;
    OWN_ETC.iter().try_for_each(|(name, content)| fs::write(etc.join(name), content))
}

/// Copies files, directories and links that anybody may read; passes over everything else.
fn copy_readable(source: &Path, destination: &Path, depth: u32) -> io::Result<()> {
    let Ok(meta) = fs::symlink_metadata(source) else { return Ok(()) };
    if meta.is_symlink() {
        return symlink(fs::read_link(source)?, destination);
    }
    if meta.mode() & 0o004 == 0 {
        return Ok(());
    }
    if meta.is_dir() && depth > 0 {
        fs::DirBuilder::new().mode(0o755).recursive(true).create(destination)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            copy_readable(&entry.path(), &destination.join(entry.file_name()), depth - 1)?;
        }
    } else if meta.is_file() {
        fs::copy(source, destination)?;
        fs::set_permissions(destination, fs::Permissions::from_mode(meta.mode() & 0o755))?;
    }
    Ok(())
}
