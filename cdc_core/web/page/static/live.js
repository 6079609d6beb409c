// Keeps a page up to date: takes the parts that have changed from a stream, and puts them in place of the old ones.
"use strict";
(() => {
  const shown = document.querySelector("[data-live]");
  const texts = { live: "live", lost: "connection lost", off: "static" };
  let stream = null;

  const show = (state) => {
    if (shown.dataset.state !== state) {
      shown.dataset.state = state;
      shown.textContent = texts[state];
    }
  };

  const apply = (html) => {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    for (const part of Array.from(holder.content.children)) {
      const there = document.getElementById(part.id);
      if (there !== null) Idiomorph.morph(there, part, { morphStyle: "outerHTML", ignoreActiveValue: true });
    }
  };

  const open = () => {
    stream = new EventSource(shown.dataset.live);
    stream.addEventListener("open", () => show("live"));
    stream.addEventListener("error", (event) => {
      show("lost");
      // After an answer that is no stream, such as 503, the browser does not connect again by itself.
      if (event.target !== stream || stream.readyState !== EventSource.CLOSED) return;
      close();
      setTimeout(() => { if (stream === null && !document.hidden) open(); }, 5000);
    });
    stream.addEventListener("parts", (event) => apply(event.data));
    stream.addEventListener("point", (event) => document.dispatchEvent(new CustomEvent("point", { detail: JSON.parse(event.data) })));
    stream.addEventListener("over", () => { close(); open(); });
  };

  const close = () => {
    if (stream !== null) stream.close();
    stream = null;
  };

  // A page that nobody sees takes no connection: a browser has only six to one server.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (stream === null) open();
  });
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
})();
