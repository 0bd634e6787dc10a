// Isle's Node.js interpreter: runs inside the sandbox, receives from the agent on descriptor 3 and sends on
// descriptor 4, a pipe: only bytes can be sent to the agent.
// Modes: `once` runs one call and exits as a script would, `context` runs calls one after another.
// Code is evaluated by V8's own console mode, which has top-level await, the value of the last
// expression, and lets `let` and `const` be declared again.
'use strict';
((load, bring) => {
  const CONTROL = 3;
  const REPLY = 4;
  const LARGEST_FORM = 4 << 20;
  const LARGEST_TEXT = 256 << 10;
  const LARGEST_REPORT = 8 << 20;
  const fs = load('fs');
  const net = load('net');
  const vm = load('vm');
  const path = load('path');
  const util = load('util');
  const inspector = load('inspector');
  const { createRequire } = load('module');

  const mode = process.argv[1];
  const session = new inspector.Session();
  session.connect();
  let results = [];
  let interrupted = null;
  let count = 0;

  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  function writeAll(fd, data) {
    for (let at = 0; at < data.length;) {
      try {
        at += fs.writeSync(fd, data, at);
      } catch (problem) {
        if (problem.code !== 'EAGAIN') throw problem;
        Atomics.wait(sleeper, 0, 0, 1);
      }
    }
  }

  function send(kind, payload) {
    const data = Buffer.alloc(5 + payload.length);
    data.write(kind, 0, 'latin1');
    data.writeUInt32BE(payload.length, 1);
    payload.copy(data, 5);
    writeAll(REPLY, data);
  }

  // An interrupt may come in the middle of a stream's work: such a stream waits for a write that
  // never finishes, and would drop everything after it. So the output streams are recreated.
  function renewOutput() {
    const { Writable } = load('stream');
    for (const [name, fd] of [['stdout', 1], ['stderr', 2]]) {
      const write = (chunk, _encoding, done) => {
        try {
          writeAll(fd, chunk);
          done();
        } catch (problem) {
          done(problem);
        }
      };
      const fresh = Object.assign(new Writable({ write, decodeStrings: true }), { fd, _isStdio: true });
      Object.defineProperty(process, name, { configurable: true, enumerable: true, get: () => fresh });
      console[`_${name}`] = fresh;
    }
  }

  function parse(body) {
    const request = { code: null, path: null, cwd: null, args: [], given: [], whole: [] };
    for (let at = 0; at < body.length;) {
      const tag = String.fromCharCode(body[at]);
      const size = body.readUInt32BE(at + 1);
      const value = body.subarray(at + 5, at + 5 + size).toString('utf8');
      at += 5 + size;
      if (tag === 'c') request.code = value;
      else if (tag === 'p') request.path = value;
      else if (tag === 'd') request.cwd = value;
      else if (tag === 'a') request.args.push(value);
      else if (tag === 'g') request.given.push(value);
      else if (tag === 'e') request.whole.push(value);
    }
    return request;
  }

  const MIME = {
    'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg',
    'image/png': 'png', 'image/jpeg': 'jpeg', 'text/latex': 'latex', 'application/json': 'json',
  };
  const RICH = Symbol.for('Jupyter.display');

  function shorten(text) {
    return text.length <= LARGEST_TEXT ? text : `${text.slice(0, LARGEST_TEXT)}…`;
  }

  function plain(value) {
    return value === null || ['string', 'number', 'boolean'].includes(typeof value) || Array.isArray(value) ||
      (typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value)));
  }

  function addBundle(entry, bundle) {
    for (const [mime, content] of Object.entries(bundle || {})) {
      const form = MIME[mime];
      if (!form) continue;
      const shown = Buffer.isBuffer(content) || content instanceof Uint8Array
        ? Buffer.from(content).toString('base64') : content;
      if (typeof shown === 'string' && shown.length > LARGEST_FORM) (entry.omitted ||= []).push(form);
      else entry[form] = shown;
    }
  }

  async function add(kind, value) {
    const entry = { kind };
    try {
      if (value !== null && typeof value === 'object' && typeof value[RICH] === 'function') {
        addBundle(entry, await value[RICH]());
      } else if (value instanceof Uint8Array && value.length > 8 &&
                 Buffer.from(value.buffer, value.byteOffset, 4).equals(Buffer.from([0x89, 0x50, 0x4e, 0x47]))) {
        addBundle(entry, { 'image/png': value });
      }
    } catch {
      (entry.omitted ||= []).push('bundle');
    }
    if (plain(value) && entry.json === undefined) {
      try {
        const text = JSON.stringify(value);
        if (text !== undefined && text.length <= LARGEST_TEXT) entry.json = JSON.parse(text);
      } catch { /* it has cycles, or numbers JSON does not know */ }
    }
    try {
      entry.text ??= shorten(util.inspect(value, { depth: 6, maxArrayLength: 200, maxStringLength: 20000 }));
    } catch (problem) {
      entry.text = `<a value that cannot be shown: ${problem}>`;
    }
    results.push(entry);
  }

  function report(error) {
    let data = Buffer.from(JSON.stringify({ results, error }));
    if (data.length > LARGEST_REPORT) {
      const texts = results.slice(0, 50).map(({ kind, text }) => ({ kind, text, omitted: ['too large'] }));
      data = Buffer.from(JSON.stringify({ results: texts, error }));
    }
    send('R', data);
  }

  // Frames of this file and of its loader are below those of the code, and are not reported.
  const OWN = /^\s+at .*\(?(?:isle:interpreter|node:inspector):/;

  function describe(problem) {
    const isError = util.types.isNativeError(problem) || problem instanceof Error;
    const name = isError ? String(problem.name || problem.constructor?.name || 'Error') : 'Uncaught';
    const message = isError ? String(problem.message) : util.inspect(problem);
    const lines = isError && typeof problem.stack === 'string' ? problem.stack.split('\n') : [`${name}: ${message}`];
    const below = lines.findIndex((line) => OWN.test(line));
    const kept = below < 0 ? lines : lines.slice(0, below);
    const frames = [];
    for (const line of kept) {
      const match = /^\s+at (?:(.*?) \()?(.*?):(\d+):(\d+)\)?$/.exec(line);
      if (match) {
        frames.push({ file: match[2], line: Number(match[3]), column: Number(match[4]), function: match[1] || '', text: '' });
      }
    }
    let text = `${kept.join('\n')}\n`;
    if (isError && problem.cause !== undefined) text += `[cause]: ${util.inspect(problem.cause)}\n`;
    return { name, message: message.slice(0, 10000), traceback: frames.slice(0, 100), text: shorten(text) };
  }

  // `import()` needs the importing module, which console mode does not know: it is replaced by a function.
  function withImports(code) {
    if (!/\bimport\s*\(/.test(code)) return code;
    const tokens = /\/\/[^\n]*|\/\*[\s\S]*?\*\/|'(?:\\[\s\S]|[^'\\\n])*'|"(?:\\[\s\S]|[^"\\\n])*"|`(?:\\[\s\S]|[^`\\])*`|(?<![.\w$])import(?=\s*\()/g;
    return code.replace(tokens, (token) => {
      if (token === 'import') return '__isle_import';
      if (token[0] === '`') {
        return token.replace(/(?<=\$\{[^}]*)(?<![.\w$])import(?=\s*\()/g, '__isle_import');
      }
      return token;
    });
  }

  function hidden(name, value) {
    Object.defineProperty(globalThis, name, { value, configurable: true, writable: true, enumerable: false });
  }

  // The importing module is a file beside the code, so that packages of its directory are found.
  function speakFor(file) {
    const asker = createRequire(file);
    hidden('require', asker);
    hidden('__filename', file);
    hidden('__dirname', path.dirname(file));
    hidden('__isle_import', (name) => {
      const text = String(name);
      const url = load('url');
      if (/^(?:\.\.?\/|\/)/.test(text)) {
        return bring(url.pathToFileURL(path.resolve(path.dirname(file), text)).href);
      }
      if (/^(?:node|data|file):/.test(text) || load('module').isBuiltin?.(text)) return bring(text);
      return importPackage(asker, text);
    });
  }

  async function importPackage(asker, name) {
    const url = load('url');
    try {
      return await bring(url.pathToFileURL(asker.resolve(name)).href);
    } catch (problem) {
      if (problem.code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw problem;
    }
    // Only for importers: its entry is found by hand.
    for (const place of asker.resolve.paths(name) || []) {
      const at = path.join(place, name, 'package.json');
      if (!fs.existsSync(at)) continue;
      const about = JSON.parse(fs.readFileSync(at, 'utf8'));
      const pick = (entry) => (typeof entry === 'string' || !entry ? entry : pick(entry['.'] ?? entry.import ?? entry.node ?? entry.default));
      const entry = pick(about.exports) || about.module || about.main || 'index.js';
      return bring(url.pathToFileURL(path.join(place, name, entry)).href);
    }
    throw new Error(`Cannot find package '${name}'`);
  }

  function post(method, parameters) {
    return new Promise((resolve, reject) => {
      session.post(method, parameters, (problem, answer) => (problem ? reject(problem) : resolve(answer)));
    });
  }

  // The value itself, from the console's handle to it.
  async function valueOf(handle) {
    if (handle.objectId === undefined) {
      if (handle.unserializableValue !== undefined) {
        const text = handle.unserializableValue;
        return text.endsWith('n') ? BigInt(text.slice(0, -1)) : Number(text);
      }
      return handle.value;
    }
    let value;
    hidden('__isle_take', (taken) => { value = taken; });
    await post('Runtime.callFunctionOn', {
      objectId: handle.objectId, functionDeclaration: 'function () { __isle_take(this) }', silent: true,
    });
    delete globalThis.__isle_take;
    await post('Runtime.releaseObject', { objectId: handle.objectId });
    return handle.type === 'symbol' ? Object(value).valueOf() : value;
  }

  async function evaluate(code, name, breakable) {
    const expression = `${withImports(code)}\n//# sourceURL=${name.replace(/\s/g, '%20')}`;
    let answer;
    hidden('__isle_start', () => {
      answer = post('Runtime.evaluate', { expression, replMode: true, silent: true });
    });
    const start = new vm.Script('__isle_start()', { filename: 'isle:interpreter' });
    try {
      start.runInThisContext({ breakOnSigint: breakable });
    } catch (problem) {
      if (problem.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw problem;
      renewOutput();
      throw interruption();
    } finally {
      delete globalThis.__isle_start;
    }
    const done = await (breakable ? Promise.race([answer, new Promise((_, reject) => { interrupted = reject; })]) : answer);
    interrupted = null;
    if (done.exceptionDetails) {
      const details = done.exceptionDetails;
      const problem = details.exception ? await valueOf(details.exception) : new Error(details.text);
      if (problem instanceof SyntaxError && details.lineNumber !== undefined && !problem.stack.startsWith(name)) {
        problem.stack = `${name}:${details.lineNumber + 1}\n${problem.stack}`;
      }
      throw problem;
    }
    return valueOf(done.result);
  }

  function interruption() {
    const problem = new Error('the call was interrupted');
    problem.name = 'Interrupted';
    problem.stack = 'Interrupted: the call was interrupted';
    return problem;
  }

  function enter(request) {
    if (request.cwd !== null) {
      try {
        process.chdir(request.cwd);
      } catch (problem) {
        send('E', Buffer.from(String(Math.abs(problem.errno || 0))));
        return false;
      }
    }
    const pairs = (entries) => entries.map((entry) => {
      const at = entry.indexOf('=');
      return [entry.slice(0, at), entry.slice(at + 1)];
    });
    if (request.whole.length > 0) {
      const wanted = new Map(pairs(request.whole));
      for (const name of Object.keys(process.env)) if (!wanted.has(name)) delete process.env[name];
      for (const [name, value] of wanted) if (process.env[name] !== value) process.env[name] = value;
    }
    for (const [name, value] of pairs(request.given)) process.env[name] = value;
    return true;
  }

  async function call(request, keeps) {
    results = [];
    let error = null;
    let code = 0;
    try {
      const file = request.path === null ? null : path.resolve(request.path);
      const text = file === null ? request.code : fs.readFileSync(file, 'utf8').replace(/^#![^\n]*/, '');
      count += 1;
      const name = file ?? (keeps ? `cell-${count}` : '[eval]');
      process.argv = [process.execPath, ...(file === null ? [] : [file]), ...request.args];
      speakFor(file ?? path.join(process.cwd(), '[eval]'));
      const value = await evaluate(text, name, keeps);
      if (value !== undefined) await add('value', value);
    } catch (problem) {
      error = describe(problem);
      code = error.name === 'Interrupted' ? 130 : 1;
      fs.writeSync(2, error.text);
    }
    return { error, code };
  }

  hidden('display', (...values) => {
    for (const value of values) {
      // Rich forms may be promises; the report does not wait, so they are requested at once.
      add('display', value);
    }
  });

  // A script is reported as finished before its process exits: tearing down the engine takes longer than
  // most scripts do. A failure exits the usual way, which prints the reason. So does a script with native
  // code that may print at exit: an add-on, or an option of the engine.
  function endQuickly() {
    const { emit, reallyExit, dlopen } = process;
    let foreign = Boolean(process.env.NODE_OPTIONS || process.env.NODE_V8_COVERAGE);
    const method = (name, value) => {
      Object.defineProperty(process, name, { value, configurable: true, writable: true, enumerable: false });
    };
    method('dlopen', function (...words) {
      foreign = true;
      return Reflect.apply(dlopen, this, words);
    });
    method('reallyExit', function (code) {
      if (!foreign) {
        try {
          send('D', Buffer.from(String((code ?? 0) & 255)));
        } catch { /* nobody listens: the end of the process says it */ }
      }
      return Reflect.apply(reallyExit, process, [code]);
    });
    method('emit', function (name, ...rest) {
      const heard = Reflect.apply(emit, this, [name, ...rest]);
      if (name === 'exit' && !rest[0] && !process.exitCode) process.reallyExit(0);
      return heard;
    });
  }

  async function once(request, control) {
    if (!enter(request)) process.exit(1);
    control.unref();
    endQuickly();
    const { error, code } = await call(request, false);
    report(error);
    if (code !== 0) process.exit(code);
  }

  async function next(request) {
    if (!enter(request)) return;
    process.exitCode = undefined;
    const { error, code } = await call(request, true);
    report(error);
    send('D', Buffer.from(String(code || (process.exitCode ?? 0))));
  }

  // Much of the engine is initialised on first use. A prestarted interpreter does that before a call:
  // output, console mode, the forms of values, and this file. Nothing of it is visible to the code.
  async function warmUp() {
    for (const stream of [process.stdout, process.stderr]) stream.write('');
    const { Console } = load('console');
    const { Writable } = load('stream');
    const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
    new Console(nowhere).log('%s', { warm: [1] });
    const whole = Object.entries(process.env).map(([name, value]) => `${name}=${value}`);
    const { argv } = process;
    const request = parse(Buffer.from('c\0\0\0\x03[0]'));
    enter({ ...request, whole });
    await call(request, mode === 'context');
    JSON.stringify({ results, error: null });
    [results, count, process.argv] = [[], 0, argv];
    for (const name of ['require', '__filename', '__dirname', '__isle_import']) delete globalThis[name];
  }

  const control = new net.Socket({ fd: CONTROL, readable: true, writable: false });
  let pending = Buffer.alloc(0);
  let called = false;
  let queue = Promise.resolve();
  if (mode === 'context') {
    process.on('SIGINT', () => interrupted?.(interruption()));
    // What a call left behind may fail later; the context keeps running.
    const late = (problem) => fs.writeSync(2, `Uncaught ${describe(problem).text}`);
    process.on('uncaughtException', late);
    process.on('unhandledRejection', late);
    control.on('end', () => process.exit(0));
  }
  control.on('data', (chunk) => {
    pending = Buffer.concat([pending, chunk]);
    while (pending.length >= 5 && pending.length >= 5 + pending.readUInt32BE(1)) {
      const size = pending.readUInt32BE(1);
      const request = parse(pending.subarray(5, 5 + size));
      pending = Buffer.from(pending.subarray(5 + size));
      called = true;
      queue = queue.then(() => (mode === 'context' ? next(request) : once(request, control)));
    }
  });
  // Input that is available already is handled before this, without warming up.
  setImmediate(() => {
    if (!called) queue = warmUp().catch(() => {});
  });
})
