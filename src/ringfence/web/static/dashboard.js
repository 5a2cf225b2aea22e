"use strict";
// Keeps the page up to date and handles keyboard shortcuts. Every page can be read without this script.
(() => {
  const problem = document.getElementById("notice");
  const say = (text) => {
    const connection = document.getElementById("connection");
    connection.hidden = !text;
    connection.querySelector("span").textContent = text;
  };
  // One request renders the page again; the parts that show changed objects are replaced, except one that is typed in.
  const isTypedIn = (part) => [...part.querySelectorAll("input[type=text], textarea")].some((each) =>
    each.value || each === document.activeElement);
  const refresh = (kinds, force = false) => {
    const parts = [...document.querySelectorAll("[data-live]")].filter((part) =>
      !kinds || part.dataset.live.split(" ").some((kind) => kinds.has(kind)));
    if (parts.length) loading = loading.then(() => replace(parts.map((part) => part.id), force));
  };
  const replace = async (ids, force) => {
    const response = await fetch(location.href).catch(() => null);
    if (!response?.ok) return; // the stream reports that the server is unreachable
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const id of ids) {
      const [part, now] = [document.getElementById(id), fresh.getElementById(id)];
      if (!part || !now || part.outerHTML === now.outerHTML) continue;
      // Only now: while the page was fetched, a person may have typed, or sent a form, whose answer htmx shows by the part.
      if ((!force && isTypedIn(part)) || part.querySelector(".htmx-request")) continue;
      part.replaceWith(now);
      htmx.process(now);
    }
  };
  let loading = Promise.resolve();
  // Refresh at once, then at most every 300 ms, with the changes that arrived meanwhile.
  let waiting = new Set();
  let timer = null;
  const flush = () => {
    timer = waiting.size ? setTimeout(flush, 300) : null;
    if (waiting.size) refresh(waiting.has("reset") ? null : waiting);
    waiting = new Set();
  };
  const note = (kind) => {
    waiting.add(kind);
    if (!timer) flush();
  };
  document.addEventListener("htmx:configRequest", (event) => { event.detail.headers["X-Ringfence"] = "page"; });
  // A button of a form may need a confirmation that the form's other buttons do not need.
  document.addEventListener("htmx:confirm", (event) => {
    const question = event.detail.triggeringEvent?.submitter?.dataset.confirm;
    if (!question) return;
    event.preventDefault();
    if (confirm(question)) event.detail.issueRequest(true);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.requestConfig.verb === "get") return;
    problem.scrollIntoView({ block: "nearest" });
    if (event.detail.successful) refresh(null, true);
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
    const filter = document.querySelector("[data-filter]");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && filter) {
      event.preventDefault();
      filter.focus();
    }
    if (event.key === "Escape" && event.target === filter) filter.blur();
  });
  document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const lost = "The dashboard's server does not answer. Reconnecting …";
  if (document.body.dataset.stream) {
    const stream = new EventSource(document.body.dataset.stream);
    let broken = false;
    stream.onopen = () => { if (broken) { broken = false; say(""); refresh(null); } };
    stream.onerror = () => { broken = true; say(lost); };
    stream.addEventListener("changed", (event) => { if (!document.hidden) note(event.data); });
    stream.addEventListener("away", (event) => { say(event.data); });
    stream.addEventListener("back", () => { say(""); refresh(null); });
    document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(null); });
  }
  const log = document.querySelector("[data-follow]");
  if (log) {
    const most = Number(log.dataset.most);
    const status = document.getElementById("following");
    let position = log.dataset.start;
    const follow = () => {
      const stream = new EventSource(`${log.dataset.follow}&start=${position}`);
      stream.addEventListener("events", (event) => {
        const atEnd = innerHeight + scrollY >= document.documentElement.scrollHeight - 80;
        htmx.swap(log, event.data, { swapStyle: "beforeend" });
        position = event.lastEventId;
        while (log.children.length > most) log.firstElementChild.remove();
        if (atEnd) scrollTo(0, document.documentElement.scrollHeight);
      });
      stream.addEventListener("end", () => { stream.close(); if (status) status.hidden = true; refresh(null); });
      stream.onerror = () => { stream.close(); setTimeout(follow, 1000); };
    };
    follow();
  }
})();
