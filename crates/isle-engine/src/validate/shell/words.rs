//! Shell text as words and the signs between them. What stands in quotes, comments and here-documents is
//! told from commands; what is wrong is read as far as it goes, and never refused.

/// A word, or a sign between words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// With quotes and backslashes taken away.
    Word(String),
    /// `;`, `|`, `&&`, `(`, a line's end and so on.
    Sign(&'static str),
    /// `>` or `>>`; the next word is the file.
    Into,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Token {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            Kind::Word(text) => Some(text),
            Kind::Sign(_) | Kind::Into => None,
        }
    }

    pub(super) fn is(&self, sign: &str) -> bool {
        matches!(&self.kind, Kind::Sign(own) if *own == sign)
    }
}

pub(super) struct Lexer<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    line: u32,
    column: u32,
    tokens: Vec<Token>,
    /// Ends of here-documents that begin on the next line.
    documents: Vec<String>,
    /// How many commands between quotes this one is inside of.
    depth: usize,
}

/// Deeper than this nothing is a command any more: the text is a stranger's, and so is its depth.
const DEEPEST: usize = 16;

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let rest = text.chars().peekable();
        Self { rest, line: 1, column: 1, tokens: Vec::new(), documents: Vec::new(), depth: 0 }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            (self.line, self.column) = (self.line + 1, 1);
        } else {
            self.column += 1;
        }
        Some(next)
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn push(&mut self, kind: Kind, (line, column): (u32, u32)) {
        self.tokens.push(Token { kind, line, column });
    }

    pub(super) fn run(mut self) -> Vec<Token> {
        while let Some(next) = self.peek() {
            let at = (self.line, self.column);
            match next {
                ' ' | '\t' | '\r' => {
                    self.next();
                }
                '#' => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.next();
                    }
                }
                '\n' => {
                    self.next();
                    self.push(Kind::Sign("\n"), at);
                    self.skip_documents();
                }
                ';' | '|' | '&' | '(' | ')' | '`' | '<' | '>' => self.sign(at),
                _ => self.word(at),
            }
        }
        self.tokens
    }

    fn sign(&mut self, at: (u32, u32)) {
        let Some(first) = self.next() else { return };
        let second = self.peek();
        let sign = match (first, second) {
            ('|', Some('|')) => "||",
            ('&', Some('&')) => "&&",
            (';', Some(';')) => ";;",
            ('<', Some('<')) => return self.document(),
            ('<', _) => "<",
            ('>', _) => {
                if matches!(second, Some('>' | '|')) {
                    self.next();
                }
                if self.peek() == Some('&') {
                    self.next();
                } else {
                    self.push(Kind::Into, at);
                }
                return;
            }
            ('|', _) => "|",
            ('&', Some('>')) => return,
            ('&', _) => "&",
            (';', _) => ";",
            ('(', _) => "(",
            ('`', _) => "`",
            _ => ")",
        };
        if sign.len() == 2 {
            self.next();
        }
        self.push(Kind::Sign(sign), at);
    }

    /// `<<WORD`, `<<-WORD`, `<<<word`.
    fn document(&mut self) {
        self.next();
        if self.peek() == Some('<') {
            self.next();
            return;
        }
        if self.peek() == Some('-') {
            self.next();
        }
        while self.peek().is_some_and(|c| c == ' ' || c == '\t') {
            self.next();
        }
        let before = self.tokens.len();
        let at = (self.line, self.column);
        self.word(at);
        if let Some(Kind::Word(end)) = self.tokens.drain(before..).next().map(|token| token.kind) {
            self.documents.push(end);
        }
    }

    fn skip_documents(&mut self) {
        for end in std::mem::take(&mut self.documents) {
            loop {
                let mut line = String::new();
                let mut ended = true;
                while let Some(next) = self.next() {
                    if next == '\n' {
                        ended = false;
                        break;
                    }
                    line.push(next);
                }
                if ended || line.trim_start_matches('\t') == end {
                    break;
                }
            }
        }
    }

    fn word(&mut self, at: (u32, u32)) {
        let mut text = String::new();
        while let Some(next) = self.peek() {
            match next {
                ' ' | '\t' | '\r' | '\n' | ';' | '|' | '&' | '(' | ')' | '`' | '<' | '>' => break,
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        Some(next) => text.push(next),
                    }
                }
                '\'' => {
                    self.next();
                    while let Some(next) = self.next().filter(|&c| c != '\'') {
                        text.push(next);
                    }
                }
                '"' => {
                    self.next();
                    self.quoted(&mut text);
                }
                '$' => {
                    self.next();
                    text.push('$');
                    // The command in brackets begins a command of its own.
                    if self.peek() == Some('{') {
                        while let Some(next) = self.next() {
                            text.push(next);
                            if next == '}' {
                                break;
                            }
                        }
                    }
                }
                _ => text.extend(self.next()),
            }
        }
        self.push(Kind::Word(text), at);
    }

    /// To the closing quote. What stands in `$(…)` is a command also between quotes.
    fn quoted(&mut self, text: &mut String) {
        while let Some(next) = self.next() {
            match next {
                '"' => return,
                '\\' => text.extend(self.next().filter(|&c| c != '\n')),
                '$' if self.peek() == Some('(') && self.depth < DEEPEST => {
                    let (line, column) = (self.line, self.column);
                    let mut inner = String::new();
                    let mut depth = 0usize;
                    while let Some(next) = self.next() {
                        match next {
                            '(' => depth += 1,
                            ')' => depth -= 1,
                            _ => {}
                        }
                        inner.push(next);
                        if depth == 0 {
                            break;
                        }
                    }
                    let nested = Lexer { line, column, depth: self.depth + 1, ..Lexer::new(&inner) };
                    let found = nested.run();
                    self.tokens.extend(found);
                }
                next => text.push(next),
            }
        }
    }
}
