// A server for tests: HTTP/1.1 and HTTP/2 over TLS. It tells what it saw of a request, serves the
// repositories of its directory to git, and gives back what it hears over a WebSocket.
const http2 = require('http2'), fs = require('fs'), child_process = require('child_process'), zlib = require('zlib');
const { createHash } = require('crypto');

function git(request, response, path, query) {
  const field = name => request.headers[name] || '';
  const env = {
    ...process.env, GIT_PROJECT_ROOT: process.cwd(), GIT_HTTP_EXPORT_ALL: '1', REMOTE_USER: 'me',
    PATH_INFO: path, QUERY_STRING: query, REQUEST_METHOD: request.method,
    CONTENT_TYPE: field('content-type'), CONTENT_LENGTH: field('content-length'),
    HTTP_CONTENT_ENCODING: field('content-encoding'), HTTP_GIT_PROTOCOL: field('git-protocol'),
  };
  const backend = child_process.spawn('git', ['http-backend'], { env });
  request.pipe(backend.stdin);
  backend.stdin.on('error', () => {});
  const parts = [];
  backend.stdout.on('data', part => parts.push(part));
  backend.on('close', () => {
    const answer = Buffer.concat(parts), end = answer.indexOf('\r\n\r\n');
    for (const line of answer.subarray(0, end).toString().split('\r\n')) {
      const [name, value] = line.split(': ');
      if (name === 'Status') response.statusCode = parseInt(value);
      else response.setHeader(name, value);
    }
    response.end(answer.subarray(end + 4));
  });
}

// Gives back the credential it is sent, or was sent last, in the way that the path names.
let kept = '';
function reflect(request, response, way) {
  const sent = request.headers['x-api-key'] || (request.headers.authorization || '').replace(/^Bearer /, '');
  fs.appendFileSync('seen', JSON.stringify({ way, sent }) + '\n');
  if (sent) kept = sent;
  const text = `before ${kept} after\n`;
  const encoded = (name, bytes) => { response.setHeader('content-encoding', name); response.end(bytes); };
  if (way === 'headers') {
    response.setHeader('x-request-id', kept);
    response.setHeader('access-control-allow-origin', kept);
    return response.end();
  }
  if (way === 'location') {
    response.statusCode = 302;
    response.setHeader('location', '/reflect/x?x=' + encodeURIComponent(kept));
    return response.end();
  }
  if (way === 'gzip') return encoded('gzip', zlib.gzipSync(text));
  if (way === 'deflate') return encoded('deflate', zlib.deflateSync(text));
  if (way === 'br') return encoded('br', zlib.brotliCompressSync(text));
  if (way === 'zstd' && zlib.zstdCompressSync) return encoded('zstd', zlib.zstdCompressSync(text));
  if (way === 'pieces') {
    let at = 0;
    const next = () => at < text.length ? response.write(text[at++], next) : response.end();
    return next();
  }
  if (way === 'forms') {
    const bytes = Buffer.from(kept), basic = Buffer.from('me:' + kept);
    return response.end([bytes.toString('hex'), bytes.toString('base64'), basic.toString('base64url'),
      encodeURIComponent(kept), JSON.stringify(kept), kept.toUpperCase()].join('\n'));
  }
  if (way === 'range' && request.headers.range) {
    const at = parseInt(request.headers.range.slice('bytes='.length));
    response.statusCode = 206;
    return response.end(kept[at]);
  }
  response.end(text);
}

const files = { cert: fs.readFileSync('cert.pem'), key: fs.readFileSync('key.pem'), allowHTTP1: true };
const server = http2.createSecureServer(files, (request, response) => {
  const [path, query = ''] = request.url.split('?');
  if (path.startsWith('/git/private/')) {
    // As services do: who says nothing is asked, and only the right word opens.
    const right = 'Basic ' + Buffer.from('me:' + fs.readFileSync('token')).toString('base64');
    if (request.headers.authorization !== right) {
      response.statusCode = 401;
      response.setHeader('www-authenticate', 'Basic realm="git"');
      return response.end();
    }
    return git(request, response, path.slice('/git/private'.length), query);
  }
  if (path.startsWith('/git/')) return git(request, response, path.slice(4), query);
  if (path.startsWith('/reflect/')) return reflect(request, response, path.slice('/reflect/'.length));
  const hash = createHash('sha256');
  let size = 0;
  request.on('data', part => { size += part.length; hash.update(part); });
  request.on('end', () => {
    const { method, url, headers, httpVersion } = request;
    const seen = { httpVersion, method, url, headers, size, sha256: hash.digest('hex') };
    fs.appendFileSync('seen', JSON.stringify(seen) + '\n');
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ httpVersion, method, url, size, sha256: seen.sha256 }) + '\n');
  });
});
server.on('upgrade', (request, socket) => {
  fs.appendFileSync('seen', JSON.stringify({ upgrade: request.url, headers: request.headers }) + '\n');
  socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
  socket.on('error', () => {});
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => {
  fs.writeFileSync('port.new', String(server.address().port));
  fs.renameSync('port.new', 'port');
});
