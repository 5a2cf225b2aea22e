// Loaded by every Node.js inside (NODE_OPTIONS=--require): by itself it does not look at HTTP_PROXY. Newer ones do where
// NODE_USE_ENV_PROXY says so, but Node 22 then warns at each start, and their `fetch` hides why the proxy refused.
// Leads `fetch` and the default agents of `http` and `https` through the proxy by CONNECT. Programs with agents of their
// own (npm, yarn, axios, got) read the variables themselves and are left alone.
"use strict";
(() => {
  const env = process.env;
  const address = env.HTTPS_PROXY || env.https_proxy;
  if (!address || env.NODE_USE_ENV_PROXY === "1") return; // the user wants Node's own way
  let proxy;
  try {
    proxy = new URL(address);
  } catch {
    return;
  }
  const near = (env.NO_PROXY || env.no_proxy || "").split(",").map((name) => name.trim().toLowerCase()).filter(Boolean);
  const isNear = (host) =>
    near.some((name) => host === name || (name.startsWith(".") && host.endsWith(name)));
  const bare = (host) => String(host || "localhost").toLowerCase().replace(/^\[(.*)\]$/, "$1");

  // Calls back with a stream to host:port, encrypted if so wished.
  function tunnel(options, isTls, done) {
    const http = require("node:http");
    const host = bare(options.hostname || options.host);
    const port = options.port || (isTls ? 443 : 80);
    const shown = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
    const request = http.request({
      agent: new http.Agent(), host: proxy.hostname, port: proxy.port, method: "CONNECT", path: shown,
      headers: { host: shown },
    });
    request.once("error", done);
    request.once("connect", (answer, socket) => {
      if (answer.statusCode !== 200) {
        socket.destroy();
        done(new Error(`the proxy refused ${shown}: ${answer.statusCode} ${answer.statusMessage}`));
      } else if (isTls) {
        const tls = require("node:tls");
        const servername = options.servername || (require("node:net").isIP(host) ? "" : host);
        const secure = tls.connect({ ...options, host, port, path: undefined, socket, servername });
        secure.once("secureConnect", () => { secure.off("error", done); done(null, secure); });
        secure.once("error", done);
      } else done(null, socket);
    });
    request.end();
  }

  for (const [name, isTls] of [["node:http", false], ["node:https", true]]) {
    const module = require(name);
    const direct = module.globalAgent.createConnection;
    module.globalAgent.createConnection = function (options, done) {
      if (options.socketPath || isNear(bare(options.hostname || options.host))) return direct.call(this, options, done);
      let isOver = false;
      tunnel(options, isTls, (error, stream) => {
        if (isOver) return;
        isOver = true;
        done(error, stream);
      });
    };
  }

  // Of the fetch in Node, only its global dispatcher can be had from outside, and only once it was made: at the first call.
  const key = Symbol.for("undici.globalDispatcher.1");
  const original = globalThis.fetch;
  if (typeof original !== "function") return;
  globalThis.fetch = function fetch(...words) {
    globalThis.fetch = original;
    void globalThis.Headers; // has it made
    const Agent = globalThis[key] && globalThis[key].constructor;
    if (Agent && Agent.name === "Agent") globalThis[key] = new Agent({ connect });
    return original(...words);
  };

  function connect(options, done) {
    const isTls = options.protocol === "https:";
    const host = bare(options.hostname);
    if (isNear(host)) {
      const near = require(isTls ? "node:tls" : "node:net");
      const socket = near.connect({ ...options, host, port: options.port || (isTls ? 443 : 80) });
      socket.once(isTls ? "secureConnect" : "connect", () => done(null, socket));
      socket.once("error", (error) => done(error, null));
      return;
    }
    let isOver = false;
    tunnel({ ...options, ALPNProtocols: ["http/1.1"] }, isTls, (error, stream) => {
      if (isOver) return;
      isOver = true;
      done(error, stream);
    });
  }
})();
