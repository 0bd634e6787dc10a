//! Examples printed below the help of the most used commands.

pub(super) const RUN: &str = "Examples:
  isle run -- uname -a
  isle run --timeout 30s --memory 512M script.py
  isle run --allow example.com:443 -- curl -s https://example.com/
  echo 'print(1 + 1)' | isle run --lang python";

pub(super) const EXEC: &str = "Examples:
  isle exec box -- ls -la /workspace
  isle exec box --env DEBUG=1 --cwd /workspace/app -- make test
  isle exec box --timeout 1m script.sh
  isle exec box -- sh -c 'cat > /workspace/data.json' < data.json";

pub(super) const SHELL: &str = "Examples:
  isle shell
  isle shell box
  isle shell box --user root --cwd /workspace";

pub(super) const CP: &str = "Examples:
  isle cp data.csv box:data.csv
  isle cp src box:/workspace/src
  isle cp box:result.txt .
  isle cp box:result.txt - | less";

pub(super) const CREATE: &str = "Examples:
  isle create box
  isle create box --memory 2G --cpus 1 --ttl 8h
  isle create box --allow example.com:443 --env LANG=C.UTF-8
  isle create box --secret API_KEY --file config.json:/workspace/config.json";

pub(super) const ALLOW: &str = "Examples:
  isle allow box example.com:443
  isle allow box '*.example.com' --for 1h
  isle allow box 'https://api.example.com/v1/* GET,POST'
  isle allow --all pip";

pub(super) const EXPOSE: &str = "Examples:
  isle expose box 8000
  isle expose box 8000 --host-port 0
  isle expose box 8000 --wait 10s";

pub(super) const JOB: &str = "Examples:
  isle job start box --name web -- python3 -m http.server 8000
  isle job ls box
  isle logs box:web --follow
  isle job stop box:web";

pub(super) const SECRET: &str = "Examples:
  isle secret set API_KEY --host api.example.com
  isle secret set API_KEY --host api.example.com --file key.txt
  isle secret attach box API_KEY
  isle secret list box";

pub(super) const SERVE: &str = "Examples:
  isle serve
  isle serve --listen 127.0.0.1:7777
  isle serve --state-dir /srv/isle";

pub(super) const MCP: &str = "Examples:
  isle mcp
  isle mcp --toolsets core,files,jobs
  claude mcp add isle -- isle mcp";
