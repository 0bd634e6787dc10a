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
    "crypto-policies",
    "debian_version",
    "default/locale",
    "ethertypes",
    "fonts",
    "gai.conf",
    "gnutls",
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
    "pki/ca-trust/source",
    "pki/java",
    "pki/tls/cert.pem",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "pki/trust",
    "profile",
    "profile.d",
    "protocols",
    "rpc",
    "screenrc",
    "services",
    "shells",
    "skel",
    "ssl/ca-bundle.pem",
    "ssl/cert.pem",
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

/// Where links of `/etc` lead on openSUSE: the authorities it knows. Inside they are with everything else
/// that is copied, and a link is in their place.
pub(super) const BEYOND_ETC: &str = "var/lib/ca-certificates";
const WITHIN_ETC: &str = "var-ca-certificates";

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
    for name in from_host(&host.join("etc")) {
        let (source, destination) = (host.join("etc").join(&name), target.join("etc").join(&name));
        if fs::symlink_metadata(&source).is_err() {
            continue;
        }
        if let Some(parent) = destination.parent() {
            make(parent, 0o755)?;
        }
        copy_readable(&source, &destination, 4)?;
    }
    if fs::symlink_metadata(host.join(BEYOND_ETC)).is_ok() {
        copy_readable(&host.join(BEYOND_ETC), &target.join("etc").join(WITHIN_ETC), 4)?;
        symlink(format!("/etc/{WITHIN_ETC}"), target.join(BEYOND_ETC))?;
    }
    let etc = target.join("etc");
    symlink("/proc/mounts", etc.join("mtab"))?;
    OWN_ETC.iter().try_for_each(|(name, content)| fs::write(etc.join(name), content))
}

/// Copies files, directories and links that are world-readable; skips everything else.
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

    use super::*;

    /// Lays a system out as a line of the table says.
    fn lay_out(host: &Path, line: &str) {
        let below = |path: &str| host.join(path.trim_start_matches('/'));
        let words: Vec<&str> = line.split_whitespace().collect();
        let above = |path: &Path| fs::create_dir_all(path.parent().unwrap()).unwrap();
        match words[..] {
            ["bundle" | "java", path] => {
                above(&below(path));
                fs::write(below(path), "authorities").unwrap();
            }
            ["names" | "anchors", path] => {
                fs::create_dir_all(below(path)).unwrap();
                fs::write(below(path).join("one"), "authorities").unwrap();
            }
            ["link", path, to] => {
                above(&below(path));
                symlink(to, below(path)).unwrap();
            }
            ["openssl", ..] => {}
            _ => panic!("{line}"),
        }
    }

    /// What a process with the root `root` reads there.
    fn read_in(root: &Path, path: &str) -> io::Result<String> {
        let root = rustix::fs::open(root, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        let file = openat2(&root, path, OFlags::RDONLY, Mode::empty(), ResolveFlags::IN_ROOT)?;
        let mut text = String::new();
        fs::File::from(file).read_to_string(&mut text)?;
        Ok(text)
    }

    #[test]
    fn the_authorities_of_every_system_are_seen_where_its_programs_look() {
        let table = include_str!("../../../tests/stores/layouts.txt");
        let mut seen = 0;
        for system in table.split("\n[").skip(1) {
            let (name, lines) = system.split_once(']').unwrap();
            if name == "nixos" {
                // Its programs are not where image `host` shows any.
                continue;
            }
            let (host, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            fs::create_dir(host.path().join("usr")).unwrap();
            let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
            lines.iter().for_each(|line| lay_out(host.path(), line));
            build(host.path(), target.path()).unwrap();
            for line in lines {
                let words: Vec<&str> = line.split_whitespace().collect();
                let found = match words[..] {
                    ["names" | "anchors", path] => read_in(target.path(), &format!("{path}/one")),
                    ["link", path, _]
                        if host.path().join(&path[1..]).is_dir() || path == "/etc/ssl/certs" =>
                    {
                        read_in(target.path(), &format!("{path}/one"))
                    }
                    ["bundle" | "java" | "link", path, ..] => read_in(target.path(), path),
                    _ => continue,
                };
                assert_eq!(found.ok().as_deref(), Some("authorities"), "{name}: {line}");
                seen += 1;
            }
        }
        assert!(seen > 30, "{seen}");
    }

    #[test]
    fn what_only_some_may_read_is_not_shown() {
        let (host, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        lay_out(host.path(), "bundle /etc/ssl/certs/private.pem");
        lay_out(host.path(), "bundle /etc/ssl/private/key.pem");
        let closed = fs::Permissions::from_mode(0o640);
        fs::set_permissions(host.path().join("etc/ssl/certs/private.pem"), closed).unwrap();
        build(host.path(), target.path()).unwrap();
        assert!(target.path().join("etc/ssl/certs").exists());
        assert!(!target.path().join("etc/ssl/certs/private.pem").exists());
        assert!(!target.path().join("etc/ssl/private").exists());
    }
}
