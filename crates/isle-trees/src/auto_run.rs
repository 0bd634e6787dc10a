//! Files that programs on the host run or follow automatically: to be reviewed when a sandbox has written
//! them. They are copied like others and listed in the result.

use std::collections::BTreeMap;

/// Maximum number of files listed per kind. There is no total limit: the number of kinds is that of the
/// table, and many files of one kind must not hide another.
const NAMED_OF_A_KIND: usize = 10;

/// When a file takes effect, the most dangerous first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Danger {
    /// It runs when a user enters the directory, opens it in an editor, starts a shell, or uses git.
    AtOnce,
    /// It runs, or configures what runs, when its tool is used.
    WithItsTool,
    /// It is read as settings or instructions.
    Obeyed,
    /// It runs when a user runs it.
    WhenCalled,
}

use Danger::{AtOnce, Obeyed, WhenCalled, WithItsTool};

/// A new or changed file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviewed {
    /// Relative to the top.
    pub path: Vec<u8>,
    /// Which program runs or follows it, and when.
    pub why: &'static str,
}

/// Files to review, the most dangerous first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Review {
    kinds: BTreeMap<Reason, OfKind>,
}

/// Why a file should be reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    danger: Danger,
    why: &'static str,
}

/// The files of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OfKind {
    /// Depth and path, the nearest to the top first.
    named: Vec<(usize, Vec<u8>)>,
    count: u64,
}

/// Why a file that became executable is listed.
pub const EXECUTABLE: Reason = Reason { danger: WhenCalled, why: "it became executable" };

impl OfKind {
    fn keep(&mut self, path: (usize, Vec<u8>)) {
        let at = self.named.partition_point(|known| *known <= path);
        if at < NAMED_OF_A_KIND {
            self.named.insert(at, path);
            self.named.truncate(NAMED_OF_A_KIND);
        }
    }
}

impl Review {
    /// Adds a file.
    pub fn add(&mut self, path: &[u8], reason: Reason) {
        let kind = self.kinds.entry(reason).or_default();
        kind.count += 1;
        let depth = path.iter().filter(|&&byte| byte == b'/').count();
        kind.keep((depth, path.to_vec()));
    }

    /// Adds the files of another review.
    pub fn merge(&mut self, other: &Self) {
        for (reason, theirs) in &other.kinds {
            let kind = self.kinds.entry(*reason).or_default();
            kind.count += theirs.count;
            theirs.named.iter().for_each(|path| kind.keep(path.clone()));
        }
    }

    /// The first files of every kind, at most `of_each`.
    pub fn first(&self, of_each: usize) -> impl Iterator<Item = Reviewed> {
        self.kinds.iter().flat_map(move |(reason, kind)| {
            let named = kind.named.iter().take(of_each);
            named.map(|(_, path)| Reviewed { path: path.clone(), why: reason.why })
        })
    }

    /// The listed files.
    pub fn named(&self) -> impl Iterator<Item = Reviewed> {
        self.first(NAMED_OF_A_KIND)
    }

    /// Reason and number of the further files of each kind.
    pub fn besides(&self, of_each: usize) -> impl Iterator<Item = (&'static str, u64)> {
        let more = move |(reason, kind): (&Reason, &OfKind)| {
            let named = kind.named.len().min(of_each) as u64;
            (kind.count > named).then(|| (reason.why, kind.count - named))
        };
        self.kinds.iter().filter_map(more)
    }

    /// Reason and number of the files that are not listed.
    pub fn unnamed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.besides(NAMED_OF_A_KIND)
    }

    /// The number of files.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.kinds.values().map(|kind| kind.count).sum()
    }
}

/// How a row matches files.
#[derive(Debug)]
enum Row {
    /// By name, in any directory.
    Name(&'static str),
    /// By the end of the name.
    Ending(&'static str),
    /// By the last parts of the path.
    Path(&'static str),
    /// Everything below a directory of this name.
    Below(&'static str),
}

use Row::{Below, Ending, Name, Path};

/// The known files. Names are compared case-insensitively.
const TABLE: &[(Row, Danger, &str)] = &[
    (Name(".envrc"), AtOnce, "direnv runs it when a shell enters the directory"),
    (Name(".env"), Obeyed, "many tools read environment variables from it"),
    (Name(".mise.toml"), AtOnce, "mise runs hooks and sets the environment from it"),
    (Name("mise.toml"), AtOnce, "mise runs hooks and sets the environment from it"),
    (Name(".tool-versions"), Obeyed, "asdf and mise select program versions from it"),
    (Name(".autoenv"), AtOnce, "autoenv runs it when a shell enters the directory"),
    (Name(".autoenv.zsh"), AtOnce, "autoenv runs it when a shell enters the directory"),
    (Path(".vscode/tasks.json"), AtOnce, "editors run its tasks, some when the folder is opened"),
    (Path(".vscode/settings.json"), AtOnce, "editors start the programs it names"),
    (Path(".vscode/launch.json"), WithItsTool, "editors run it when debugging starts"),
    (Path(".vscode/mcp.json"), AtOnce, "editors start the servers it names"),
    (Path(".vscode/extensions.json"), Obeyed, "editors offer to install what it names"),
    (Ending(".code-workspace"), AtOnce, "editors apply its settings and run its tasks"),
    (Below(".devcontainer"), AtOnce, "editors build and start what it describes"),
    (Name(".devcontainer.json"), AtOnce, "editors build and start what it describes"),
    (Below(".idea"), AtOnce, "JetBrains editors run what its configurations name"),
    (Below(".fleet"), AtOnce, "JetBrains editors run what its configurations name"),
    (Below(".run"), AtOnce, "JetBrains editors run what its configurations name"),
    (Below(".zed"), AtOnce, "the Zed editor starts the programs it names"),
    (Ending(".sublime-project"), AtOnce, "the editor runs the build systems in it"),
    (Name(".dir-locals.el"), AtOnce, "Emacs evaluates it when a file is opened"),
    (Name(".dir-locals-2.el"), AtOnce, "Emacs evaluates it when a file is opened"),
    (Name(".vimrc"), AtOnce, "Vim runs it when it starts here or at home"),
    (Name(".gvimrc"), AtOnce, "Vim runs it when it starts here or at home"),
    (Name(".exrc"), AtOnce, "Vim runs it when it starts here or at home"),
    (Name(".nvimrc"), AtOnce, "Neovim runs it when it starts here or at home"),
    (Name(".nvim.lua"), AtOnce, "Neovim runs it when it starts here"),
    (Name(".emacs"), AtOnce, "Emacs runs it when it starts"),
    (Below(".emacs.d"), AtOnce, "Emacs runs it when it starts"),
    (Name(".tmux.conf"), AtOnce, "tmux runs it when it starts"),
    (Name(".screenrc"), AtOnce, "screen runs it when it starts"),
    (Name(".bashrc"), AtOnce, "bash runs it when a shell starts in this home"),
    (Name(".bash_profile"), AtOnce, "bash runs it at login"),
    (Name(".bash_login"), AtOnce, "bash runs it at login"),
    (Name(".bash_logout"), AtOnce, "bash runs it at logout"),
    (Name(".bash_aliases"), AtOnce, "bash runs it when a shell starts in this home"),
    (Name(".profile"), AtOnce, "shells run it at login"),
    (Name(".xprofile"), AtOnce, "the desktop runs it at login"),
    (Name(".xsessionrc"), AtOnce, "the desktop runs it at login"),
    (Name(".xinitrc"), AtOnce, "the desktop runs it at login"),
    (Name(".inputrc"), Obeyed, "shells bind keys to commands from it"),
    (Name(".zshrc"), AtOnce, "zsh runs it when a shell starts in this home"),
    (Name(".zshenv"), AtOnce, "zsh runs it whenever it starts"),
    (Name(".zprofile"), AtOnce, "zsh runs it at login"),
    (Name(".zlogin"), AtOnce, "zsh runs it at login"),
    (Path("fish/config.fish"), AtOnce, "fish runs it when a shell starts"),
    (Below(".ssh"), AtOnce, "ssh trusts the keys and runs the commands in it"),
    (Below(".gnupg"), AtOnce, "gpg starts the programs it names"),
    (Below(".config/autostart"), AtOnce, "the desktop runs it at login"),
    (Below(".config/systemd"), AtOnce, "systemd runs it at login"),
    (Name(".netrc"), Obeyed, "programs read passwords and macros from it"),
    (Name(".gitconfig"), AtOnce, "git runs the programs it names, in a home directory"),
    (Path(".config/git/config"), AtOnce, "git runs the programs it names, in a home directory"),
    (Name(".hgrc"), AtOnce, "Mercurial runs the hooks in it"),
    (Below(".hg"), AtOnce, "Mercurial runs the hooks in its configuration"),
    (Below(".svn"), AtOnce, "Subversion follows its configuration"),
    (Below(".jj"), AtOnce, "Jujutsu follows its configuration"),
    (Below(".githooks"), AtOnce, "git runs it where core.hooksPath names this directory"),
    (Below(".husky"), AtOnce, "git runs it as hooks once husky is installed"),
    (Name(".pre-commit-config.yaml"), AtOnce, "pre-commit runs what it names with every commit"),
    (Name("lefthook.yml"), AtOnce, "lefthook runs what it names with every commit"),
    (Name(".lintstagedrc"), AtOnce, "lint-staged runs what it names with every commit"),
    (Ending(".pth"), AtOnce, "Python runs lines of it whenever it starts, in a site directory"),
    (Name("sitecustomize.py"), AtOnce, "Python runs it whenever it starts"),
    (Name("usercustomize.py"), AtOnce, "Python runs it whenever it starts"),
    (Name("conftest.py"), WithItsTool, "pytest runs it before any test"),
    (Name(".pdbrc"), WithItsTool, "the Python debugger runs it when it starts"),
    (Name("pyvenv.cfg"), Obeyed, "it makes the directory a Python environment with its own programs"),
    (Name(".pypirc"), Obeyed, "Python tools upload packages and passwords to its servers"),
    (Name("pip.conf"), Obeyed, "pip installs from the indexes it names"),
    (Name(".npmrc"), WithItsTool, "npm and others read registries and the script shell from it"),
    (Name(".yarnrc"), WithItsTool, "yarn runs the program its yarn-path names"),
    (Name(".yarnrc.yml"), WithItsTool, "yarn runs the program its yarnPath names"),
    (Below(".yarn"), WithItsTool, "yarn runs the releases and plug-ins in it"),
    (Name(".pnp.cjs"), WithItsTool, "Node.js loads it before the program"),
    (Name(".pnp.loader.mjs"), WithItsTool, "Node.js loads it before the program"),
    (Name(".pnpmfile.cjs"), WithItsTool, "pnpm runs it with every installation"),
    (Name("bunfig.toml"), WithItsTool, "bun loads what its preload names"),
    (Path(".cargo/config.toml"), WithItsTool, "cargo runs the wrappers, runners and linkers it names"),
    (Path(".cargo/config"), WithItsTool, "cargo runs the wrappers, runners and linkers it names"),
    (Name("rust-toolchain"), WithItsTool, "rustup runs the tool chain it names"),
    (Name("rust-toolchain.toml"), WithItsTool, "rustup runs the tool chain it names"),
    (Name(".rprofile"), WithItsTool, "R runs it when it starts here"),
    (Name(".irbrc"), WithItsTool, "irb runs it when it starts"),
    (Name(".pryrc"), WithItsTool, "pry runs it when it starts"),
    (Path(".bundle/config"), WithItsTool, "bundler loads programs from the paths it names"),
    (Path(".mvn/jvm.config"), WithItsTool, "Maven starts Java with its options"),
    (Path(".mvn/extensions.xml"), WithItsTool, "Maven loads the extensions it names"),
    (Name("gradle.properties"), WithItsTool, "Gradle starts Java with its options"),
    (Name(".bazelrc"), WithItsTool, "bazel applies its options"),
    (Name(".gdbinit"), WithItsTool, "gdb runs it when it starts here"),
    (Name(".lldbinit"), WithItsTool, "lldb runs it when it starts here"),
    (Name(".sqliterc"), WithItsTool, "sqlite3 runs it when it starts"),
    (Name(".psqlrc"), WithItsTool, "psql runs it when it starts"),
    (Name(".curlrc"), Obeyed, "curl applies its options"),
    (Name(".wgetrc"), Obeyed, "wget applies its options"),
    (Name(".lesskey"), Obeyed, "less binds keys to commands from it"),
    (Below(".claude"), AtOnce, "Claude Code runs its hooks and grants what it allows"),
    (Name("claude.md"), Obeyed, "agents read it as instructions"),
    (Name("agents.md"), Obeyed, "agents read it as instructions"),
    (Name("gemini.md"), Obeyed, "agents read it as instructions"),
    (Name(".cursorrules"), Obeyed, "agents read it as instructions"),
    (Path(".github/copilot-instructions.md"), Obeyed, "agents read it as instructions"),
    (Name(".mcp.json"), AtOnce, "agents start the servers it names"),
    (Below(".cursor"), AtOnce, "Cursor starts the servers and follows the rules in it"),
    (Below(".codex"), AtOnce, "Codex starts the servers and applies the settings in it"),
    (Below(".gemini"), AtOnce, "Gemini starts the servers and applies the settings in it"),
    (Below(".continue"), AtOnce, "agents start the servers it names"),
    (Name(".isle.toml"), AtOnce, "isle applies its settings to commands in this directory"),
    (Ending(".desktop"), WithItsTool, "the desktop starts the program it names"),
];

/// Why a file with this path should be reviewed, if so.
#[must_use]
pub fn auto_run_reason(path: &[u8]) -> Option<Reason> {
    let path = String::from_utf8_lossy(path).to_ascii_lowercase();
    let name = path.rsplit('/').next().unwrap_or(&path);
    let ends_with =
        |tail: &str| path.strip_suffix(tail).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
    let below = |directory: &str| {
        path.starts_with(&format!("{directory}/")) || path.contains(&format!("/{directory}/"))
    };
    // Nearly all names in the table have a dot; most paths need no comparison.
    if !path.contains('.') && !name.starts_with("rust-toolchain") {
        return None;
    }
    let rows = TABLE.iter().filter(|(row, _, _)| match row {
        Name(known) => name == *known,
        Ending(ending) => name.ends_with(ending),
        Path(tail) => ends_with(tail),
        Below(directory) => below(directory),
    });
    // The most dangerous match counts.
    rows.map(|&(_, danger, why)| Reason { danger, why }).min_by_key(|reason| reason.danger)
}

#[cfg(test)]
#[path = "auto_run_tests.rs"]
mod tests;
