// Isle's check of JavaScript: runs in the sandbox's own Node.js, reads the code from standard input,
// compiles it without running any of it, and prints what it found as one line of JSON.
'use strict';
const vm = require('vm');
const fs = require('fs');

const MOST = 100;
const URLS = /\b(?:https?|wss?|ftps?|ssh|git):\/\/(?:[^\s/@]*@)?([A-Za-z0-9.-]+)/g;
const SYSTEM = /^\/(?:etc|usr|bin|sbin|lib|lib64|boot|dev\/(?!null|stdout|stderr|tty)|proc|sys|root)(?:\/|$)/;
const MODULES = new Set(('assert async_hooks child_process cluster dgram dns events fs http http2 https net os path ' +
  'perf_hooks readline stream tls util v8 vm worker_threads zlib').split(' '));
const SHOWN = new Set(['Identifier', 'MemberExpression', 'BinaryExpression', 'LogicalExpression', 'TemplateLiteral',
  'ArrayExpression', 'ConditionalExpression', 'Literal', 'UnaryExpression', 'ObjectExpression']);
const OPTIONS = { ecmaVersion: 'latest', locations: true, allowHashBang: true, allowAwaitOutsideFunction: true,
  allowReturnOutsideFunction: true };
const WRITERS = new Set(['writeFile', 'writeFileSync', 'appendFile', 'appendFileSync', 'createWriteStream']);
const REMOVERS = new Set(['rm', 'rmSync', 'rmdir', 'rmdirSync']);

/** Where a piece of code is wrong. Of a module V8 does not say it, so the other parser is asked. */
function place(problem, text, acorn) {
  const lines = String(problem.stack).split('\n');
  const head = /^code:(\d+)$/.exec(lines[0]);
  if (!head) {
    try {
      if (acorn) acorn.parse(text, { ...OPTIONS, sourceType: 'module' });
    } catch (other) {
      if (other.loc) {
        const { line, column } = other.loc;
        return { line, column: column + 1, message: String(problem.message).slice(0, 500) };
      }
    }
    return null;
  }
  const caret = (lines[2] || '').indexOf('^');
  return { line: Number(head[1]), column: caret < 0 ? 1 : caret + 1, message: String(problem.message).slice(0, 500) };
}

/** Why it is no code in any of the forms Node.js runs; null when it is. */
function syntaxError(text, acorn) {
  const AsyncFunction = (async () => {}).constructor;
  const given = ['exports', 'require', 'module', '__filename', '__dirname'];
  const attempts = [
    () => vm.compileFunction(text, given, { filename: 'code' }),
    () => new AsyncFunction(...given, text),
    () => new vm.SourceTextModule(text, { identifier: 'code' }),
  ];
  let furthest = null;
  for (const attempt of attempts) {
    try {
      attempt();
      return null;
    } catch (problem) {
      // A function made from text is wrong nowhere in particular; a module is tried after it.
      const found = attempt === attempts[1] ? null : place(problem, text, acorn);
      if (!furthest) furthest = found || { line: 1, column: 1, message: String(problem.message).slice(0, 500) };
      // The form that was understood furthest is the one that was meant.
      else if (found && (found.line > furthest.line ||
          (found.line === furthest.line && found.column > furthest.column))) furthest = found;
    }
  }
  return furthest;
}

function parser() {
  try {
    return require('internal/deps/acorn/acorn/dist/acorn');
  } catch {
    return null;
  }
}

function parse(acorn, text) {
  for (const sourceType of ['script', 'module']) {
    try {
      return { tree: acorn.parse(text, { ...OPTIONS, sourceType }), sourceType };
    } catch { /* the other form, or none */ }
  }
  return null;
}

function walk(node, visit, parent = null) {
  if (!node || typeof node.type !== 'string') return;
  if (visit(node, parent) === false) return;
  for (const key of Object.keys(node)) {
    const child = node[key];
    if (Array.isArray(child)) child.forEach((one) => walk(one, visit, node));
    else if (child && typeof child.type === 'string') walk(child, visit, node);
  }
}

function bind(pattern, into) {
  walk(pattern, (node, parent) => {
    if (node.type === 'AssignmentPattern') {
      bind(node.left, into);
      return false;
    }
    const isKey = parent && parent.type === 'Property' && parent.key === node && parent.value !== node;
    if (node.type === 'Identifier' && !isKey) into.add(node.name);
    return true;
  });
}

function literal(node) {
  return node && node.type === 'Literal' && typeof node.value === 'string' ? node.value : null;
}

function loopEnds(body) {
  let ends = false;
  walk(body, (node) => {
    if (/^(Function|ArrowFunction|Class)/.test(node.type)) return false;
    if (['BreakStatement', 'ReturnStatement', 'ThrowStatement', 'AwaitExpression', 'YieldExpression'].includes(node.type) ||
        (node.type === 'MemberExpression' && node.property.name === 'exit')) ends = true;
    return !ends;
  });
  return ends;
}

function look(tree, answer) {
  const bound = new Set();
  const used = new Map();
  const hosts = new Set();
  const report = (node, name, message) => {
    if (answer.findings.length < MOST) {
      const { line, column } = node.loc.start;
      answer.findings.push({ name, line, column: column + 1, message });
    }
  };
  const text = (value) => {
    for (const match of String(value).matchAll(URLS)) hosts.add(match[1].toLowerCase().replace(/^\.+|\.+$/g, ''));
  };
  const program = (node, module) => {
    const bare = module && module.replace(/^node:/, '');
    if (bare === 'child_process') report(node, 'shell', 'child_process starts programs');
    if (bare === 'vm') report(node, 'eval', 'vm runs text as code');
    if (bare && bare.endsWith('.node')) report(node, 'native_code', `${bare} is code outside JavaScript`);
  };
  walk(tree, (node, parent) => {
    switch (node.type) {
      case 'VariableDeclarator': bind(node.id, bound); break;
      case 'FunctionDeclaration': case 'FunctionExpression': case 'ArrowFunctionExpression':
        if (node.id) bound.add(node.id.name);
        node.params.forEach((one) => bind(one, bound));
        break;
      case 'ClassDeclaration': case 'ClassExpression': if (node.id) bound.add(node.id.name); break;
      case 'CatchClause': if (node.param) bind(node.param, bound); break;
      case 'AssignmentExpression': if (node.left.type !== 'MemberExpression') bind(node.left, bound); break;
      case 'ImportDeclaration':
        node.specifiers.forEach((one) => bound.add(one.local.name));
        program(node, literal(node.source));
        break;
      case 'ImportExpression':
        if (literal(node.source) === null) report(node, 'dynamic_import', 'the module is chosen while the code runs');
        else program(node, literal(node.source));
        break;
      case 'NewExpression': case 'CallExpression': {
        const name = node.callee.name;
        const method = node.callee.type === 'MemberExpression' && !node.callee.computed ? node.callee.property.name : null;
        if (name === 'Function' || (name === 'eval' && node.type === 'CallExpression')) {
          report(node, 'eval', `${name} runs text as code`);
        }
        if (name === 'require' && node.arguments.length > 0) {
          if (literal(node.arguments[0]) === null) report(node, 'dynamic_import', 'the module is chosen while the code runs');
          else program(node, literal(node.arguments[0]));
        }
        const recursive = node.arguments.some((one) => one.type === 'ObjectExpression' &&
          one.properties.some((own) => own.key && own.key.name === 'recursive' && own.value && own.value.value === true));
        if (REMOVERS.has(method || name) && recursive) {
          report(node, 'delete_tree', `${method || name} removes everything below a directory`);
        }
        const target = literal(node.arguments[0]);
        if (WRITERS.has(method || name) && target !== null && SYSTEM.test(target)) {
          report(node, 'system_write', `writes to ${target.slice(0, 200)}`);
        }
        if (node.callee.object && node.callee.object.name === 'process' && ['dlopen', 'binding'].includes(method)) {
          report(node, 'native_code', `process.${method} reaches code outside JavaScript`);
        }
        break;
      }
      case 'MemberExpression': {
        const property = node.computed ? literal(node.property) : node.property.name;
        if (property === '__proto__' || (property === 'constructor' && node.object.type === 'MemberExpression' &&
            node.object.property.name === 'constructor')) {
          report(node, 'introspection', `${property} reaches into the interpreter`);
        }
        if (node.object.type === 'Identifier' && !used.has(node.object.name)) used.set(node.object.name, node);
        break;
      }
      case 'WhileStatement': case 'DoWhileStatement':
        if (node.test.type === 'Literal' && node.test.value && !loopEnds(node.body)) {
          report(node, 'endless_loop', 'nothing in this loop ends it');
        }
        break;
      case 'ForStatement':
        if (!node.test && !loopEnds(node.body)) report(node, 'endless_loop', 'nothing in this loop ends it');
        break;
      case 'Literal':
        if (typeof node.value === 'string' && !(parent && parent.type === 'ExpressionStatement')) text(node.value);
        break;
      case 'TemplateElement': text(node.value.cooked || ''); break;
      default:
    }
    return true;
  });
  answer.findings.sort((one, other) => one.line - other.line || one.column - other.column);
  answer.domains = [...hosts].filter(Boolean).sort().slice(0, MOST);
  return { bound, used };
}

function edits(tree, sourceType, text, { bound, used }, answer) {
  const found = [];
  const isModule = sourceType === 'module' && tree.body.some((node) => /^(Import|Export)/.test(node.type) &&
    node.type !== 'ImportExpression');
  const lines = [...used.keys()].filter((name) => MODULES.has(name) && !bound.has(name)).sort();
  if (lines.length > 0) {
    const first = tree.body.find((node) => !node.directive);
    const words = lines.map((name) => (isModule ? `import ${name} from 'node:${name}';` : `const ${name} = require('${name}');`));
    const ownLine = /(^|[\n\r\u2028\u2029])$/.test(text.slice(0, first.start));
    found.push([first.start, words.map((line) => line + (ownLine ? '\n' : ' ')).join('')]);
    lines.forEach((name, index) => answer.fixes.push({ name: 'missing_import', line: used.get(name).loc.start.line,
      message: `added: ${words[index]}` }));
  }
  const last = tree.body[tree.body.length - 1];
  if (last && last.type === 'ExpressionStatement' && !last.directive && SHOWN.has(last.expression.type)) {
    found.push([last.expression.start, 'console.log('], [last.expression.end, ')']);
    answer.fixes.push({ name: 'last_value', line: last.loc.start.line, message: 'the value of the last line is printed' });
  }
  return found;
}

function check(text, fix) {
  const answer = { errors: [], findings: [], fixes: [], edits: [], domains: [], notes: [] };
  // As long as before, so that every place stays where it is.
  const code = text.startsWith('#!') ? `//${text.slice(2)}` : text;
  const acorn = parser();
  const wrong = syntaxError(code, acorn);
  if (wrong) {
    answer.errors.push(wrong);
    return answer;
  }
  const parsed = acorn && parse(acorn, code);
  if (!parsed) {
    answer.notes.push('the syntax is good, but this Node.js has no parser that tells more: findings, domains and fixes are not known');
    return answer;
  }
  const names = look(parsed.tree, answer);
  if (fix && parsed.tree.body.length > 0) {
    const found = edits(parsed.tree, parsed.sourceType, code, names, answer).sort((one, other) => one[0] - other[0]);
    let changed = '';
    let at = 0;
    for (const [offset, inserted] of found) {
      changed += code.slice(at, offset) + inserted;
      at = offset;
    }
    if (syntaxError(changed + code.slice(at), acorn)) answer.fixes = [];
    else answer.edits = found.map(([offset, inserted]) => [Buffer.byteLength(code.slice(0, offset)), inserted]);
  }
  return answer;
}

process.stdout.write(`${JSON.stringify(check(fs.readFileSync(0, 'utf8'), process.argv.includes('fix')))}\n`);
