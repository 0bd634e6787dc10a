//! Ready-made sets of grants: where the package clients of this host get packages from, asked of the
//! clients themselves, so that a mirror works unchanged and no list of hosts is kept here. Only this host's
//! own settings count. What a sandbox holds of them could be written by the code in it, and would be a way
//! to grant itself anything.

mod clients;

use std::net::IpAddr;
use std::sync::Arc;

use isle_egress::{Grant, Name, Resolver};
use tokio::sync::OnceCell;

use super::{NetworkConfig, may_grant, parse_grants};
use crate::context::CallContext;
use crate::variables::Set;
use clients::Sources;
use isle_core::{Code, Error, Result};

/// A client of packages whose hosts can be granted by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantSet {
    /// Python's.
    Pip,
    /// Node.js's.
    Npm,
    /// Debian's.
    Apt,
    /// Rust's.
    Cargo,
}

impl GrantSet {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Pip, Self::Npm, Self::Apt, Self::Cargo];

    /// The set of that name.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.as_str() == text)
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
            Self::Cargo => "cargo",
        }
    }
}

/// The word for the host of a repository.
const GIT: &str = "git";

/// Grants that were asked for, and variables that make clients use what is granted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Granting {
    pub(crate) grants: Vec<Grant>,
    pub(crate) env: Vec<(String, String)>,
}

impl Granting {
    /// Adds to the variables of a run those that it does not set itself.
    pub(crate) fn add_to(&self, env: &mut Vec<(String, String)>) {
        for (name, value) in &self.env {
            if !env.iter().any(|(known, _)| known == name) {
                env.push((name.clone(), value.clone()));
            }
        }
    }
}

/// Grants that a caller asks for, read once: hosts, clients by their name, the host of a repository.
#[derive(Debug)]
pub(crate) struct AskedGrants {
    items: Vec<AskedItem>,
    /// What they come to, once somebody found out.
    resolved: OnceCell<Granting>,
}

#[derive(Debug)]
enum AskedItem {
    Grant(Grant),
    Set(GrantSet),
    /// The host of this repository.
    Remote(String),
}

impl AskedGrants {
    /// Reads them; `None` when nothing is asked for. `remote` is the address of a repository, where one is at
    /// hand. Granting is the operator's: for others nothing is read.
    pub(crate) fn read<T: AsRef<str>>(
        context: &CallContext,
        texts: &[T],
        remote: Option<&str>,
    ) -> Result<Option<Arc<Self>>> {
        if texts.is_empty() {
            return Ok(None);
        }
        may_grant(context)?;
        let mut items = Vec::new();
        for text in texts {
            let text = text.as_ref();
            if let Some(set) = GrantSet::named(text) {
                items.push(AskedItem::Set(set));
            } else if text == GIT {
                let remote = remote.ok_or_else(|| {
                    Error::new(
                        Code::InvalidArgument,
                        "`git` stands for the host of a repository, and none is named",
                    )
                    .next("use it with `isle file clone`; elsewhere name the host, such as example.com:443")
                })?;
                items.push(AskedItem::Remote(remote.to_owned()));
            } else {
                items.extend(parse_grants(&[text])?.into_iter().map(AskedItem::Grant));
            }
        }
        Ok(Some(Arc::new(Self { items, resolved: OnceCell::new() })))
    }
}

/// What a run asks to reach beside what its sandbox may; the pipeline's stage `network` decides about it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NetworkWish {
    /// What the caller asks for.
    pub(crate) asked: Option<Arc<AskedGrants>>,
    /// That it installs packages.
    pub(crate) install: Option<InstallNetwork>,
}

/// An installation, as far as its network goes.
#[derive(Debug, Clone)]
pub(crate) struct InstallNetwork {
    /// The client that installs, in a sandbox that has a network of its own.
    pub(crate) set: Option<GrantSet>,
    /// Variables of the sandbox, which are stronger than what the client of this host uses.
    pub(crate) variables: Set,
}

impl NetworkWish {
    /// For a run whose caller asks for this; nothing when `None`.
    pub(crate) fn asked(asked: Option<Arc<AskedGrants>>) -> Self {
        Self { asked, install: None }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.asked.is_none() && self.install.is_none()
    }
}

/// Finds out what callers ask to be granted. Knows nothing but the resolver: a mirror inside a private network is
/// granted by its addresses, too.
#[derive(Debug)]
pub(crate) struct GrantSets {
    resolver: Arc<Resolver>,
}

impl GrantSets {
    pub(crate) fn new(resolver: Arc<Resolver>) -> Self {
        Self { resolver }
    }

    /// Reads what a caller asks to be granted, and finds out what it comes to.
    pub(crate) async fn asked<T: AsRef<str>>(&self, context: &CallContext, texts: &[T]) -> Result<Granting> {
        match AskedGrants::read(context, texts, None)? {
            None => Ok(Granting::default()),
            Some(asked) => self.resolve(context, &asked).await,
        }
    }

    /// What a run may reach beside what its sandbox may. What the operator asks for counts; an installation for
    /// which nothing is asked may reach what the configuration lets every installation of that client reach.
    pub(crate) async fn decide(
        &self,
        context: &CallContext,
        wish: &NetworkWish,
        config: &NetworkConfig,
    ) -> Result<Granting> {
        let set = wish.install.as_ref().and_then(|install| install.set);
        let mut granting = match (&wish.asked, set.filter(|set| config.install.contains(set))) {
            (Some(asked), _) => self.resolve(context, asked).await?,
            // Without it the installer itself says what is missing.
            (None, Some(set)) => self.granted_set(set).await.unwrap_or_else(|error| {
                tracing::warn!(%error, set = set.as_str(), "an installation has no network");
                Granting::default()
            }),
            (None, None) => Granting::default(),
        };
        if let Some(install) = &wish.install {
            granting.env.retain(|(name, _)| !install.variables.contains_key(name));
        }
        Ok(granting)
    }

    /// What was asked for, as grants and variables; found out once, also for several runs. Granting is the
    /// operator's: no program of this host is asked anything before that is clear.
    async fn resolve(&self, context: &CallContext, asked: &AskedGrants) -> Result<Granting> {
        may_grant(context)?;
        asked.resolved.get_or_try_init(|| self.find_out(&asked.items)).await.cloned()
    }

    async fn find_out(&self, items: &[AskedItem]) -> Result<Granting> {
        let mut granting = Granting::default();
        for item in items {
            match item {
                AskedItem::Grant(grant) => granting.grants.push(grant.clone()),
                AskedItem::Set(set) => {
                    let more = self.granted_set(*set).await?;
                    granting.grants.extend(more.grants);
                    granting.env.extend(more.env);
                }
                AskedItem::Remote(remote) => granting.grants.extend(self.grants_of(remote).await?),
            }
        }
        let mut seen = Vec::new();
        granting.grants.retain(|grant| {
            let text = grant.to_string();
            let is_new = !seen.contains(&text);
            seen.push(text);
            is_new
        });
        Ok(granting)
    }

    /// What a client of this host uses, as grants and variables.
    async fn granted_set(&self, set: GrantSet) -> Result<Granting> {
        let Sources { urls, env } = clients::sources(set).await?;
        let mut grants = Vec::new();
        for url in &urls {
            grants.extend(self.grants_of(url).await?);
        }
        if grants.is_empty() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("the settings of {} on this host name no server", set.as_str()),
            )
            .next("name the hosts instead, such as --allow example.com:443"));
        }
        Ok(Granting { grants, env })
    }

    /// The grants one address needs; none for a file. A server inside, such as a mirror, is granted by its
    /// addresses, too: who set it up meant it.
    async fn grants_of(&self, url: &str) -> Result<Vec<Grant>> {
        let Some(server) = Server::of(url)? else { return Ok(Vec::new()) };
        let mut texts = vec![format!("{}:{}/{}", server.name, server.port, server.protocol)];
        let inside: Vec<IpAddr> = self.resolver.private_addresses(&server.name).await;
        texts.extend(inside.into_iter().map(|address| match address {
            IpAddr::V4(address) => format!("{address}:{}", server.port),
            IpAddr::V6(address) => format!("[{address}]:{}", server.port),
        }));
        parse_grants(&texts)
    }
}

/// A server in an address.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    name: Name,
    port: u16,
    protocol: &'static str,
}

impl Server {
    /// The server an address leads to; `None` when it leads to a file.
    fn of(url: &str) -> Result<Option<Self>> {
        let wrong = |what: &str| {
            Error::new(Code::InvalidArgument, format!("{:?}: {what}", without_user(url)))
                .next("name the host instead, such as --allow example.com:443")
        };
        // Cargo and pip write the kind of an index before its scheme.
        let url = url.rsplit_once('+').filter(|(kind, _)| !kind.contains(':')).map_or(url, |(_, rest)| rest);
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            // The short form of ssh: user@host:path. Without a user it could be anything, such as `cdrom:`.
            None => match url.split_once(':') {
                Some((host, _)) if !host.contains('/') && host.contains('@') => ("ssh", host),
                _ => return Ok(None),
            },
        };
        let (port, protocol) = match scheme.to_ascii_lowercase().as_str() {
            "https" => (443, "tls"),
            "http" => (80, "http"),
            "ssh" => (22, "tcp"),
            "git" => (9418, "tcp"),
            _ => return Ok(None),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let (host, port) = match host.rsplit_once(':') {
            Some((_, _)) if host.ends_with(']') => (host, port),
            Some((name, digits)) => (name, digits.parse().map_err(|_| wrong("its port cannot be read"))?),
            None => (host, port),
        };
        if host.starts_with('[') || host.parse::<IpAddr>().is_ok() {
            return Err(wrong("sandboxes reach servers by name, and this is an address")
                .next("give it a name with network_hosts in the configuration"));
        }
        let name = Name::parse(host).map_err(|error| wrong(&error.to_string()))?;
        Ok(Some(Self { name, port, protocol }))
    }
}

/// An address without whoever stands in it: it goes into a sandbox, or into a message.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_a_server_or_to_a_file() {
        for (url, expected) in [
            ("https://mirror.example/simple", Some(("mirror.example", 443, "tls"))),
            ("https://user:secret@Mirror.example:8443/x", Some(("mirror.example", 8443, "tls"))),
            ("http://mirror.example?x", Some(("mirror.example", 80, "http"))),
            ("sparse+https://index.example/", Some(("index.example", 443, "tls"))),
            ("ssh://git@host.example/x.git", Some(("host.example", 22, "tcp"))),
            ("git@host.example:owner/name.git", Some(("host.example", 22, "tcp"))),
            ("git://host.example/x", Some(("host.example", 9418, "tcp"))),
            ("file:///srv/wheels", None),
            ("/srv/wheels", None),
            ("./a:b", None),
            ("cdrom:/[Debian]/", None),
        ] {
            let server = Server::of(url).unwrap();
            let found = server.as_ref().map(|server| (server.name.as_str(), server.port, server.protocol));
            assert_eq!(found, expected, "{url}");
        }
        for bad in [
            "https://10.0.0.5/simple",
            "https://[::1]:8/x",
            "https://a b/",
            "https://x.example:port/",
            "https://127.1/",
        ] {
            assert!(Server::of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn whoever_stands_in_an_address_does_not_go_into_a_sandbox() {
        assert_eq!(without_user("https://user:secret@host.example/a@b"), "https://host.example/a@b");
        assert_eq!(without_user("https://host.example/x"), "https://host.example/x");
        let error = Server::of("https://user:secret@127.0.0.1/x").unwrap_err();
        assert!(!error.message.contains("secret"), "{error}");
    }

    #[test]
    fn variables_that_were_set_are_left_alone() {
        let granting = Granting {
            grants: Vec::new(),
            env: vec![("A".into(), "new".into()), ("B".into(), "new".into())],
        };
        let mut env = vec![("A".to_owned(), "own".to_owned())];
        granting.add_to(&mut env);
        assert_eq!(env, [("A".into(), "own".into()), ("B".into(), "new".into())]);
    }
}
