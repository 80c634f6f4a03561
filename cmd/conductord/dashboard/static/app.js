// The script makes the pages live. Without it they work as they are.
"use strict";

// Times: local, or how long ago. The title keeps UTC.
const ago = (seconds) => {
  const past = seconds >= 0, s = Math.abs(seconds);
  const text = s < 60 ? `${Math.floor(s)} s` : s < 3600 ? `${Math.floor(s / 60)} min` : s < 86400 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  return past ? `${text} ago` : `in ${text}`;
};
const showTimes = () => {
  for (const time of document.querySelectorAll("time[data-as]")) {
    const at = new Date(time.dateTime);
    const seconds = (Date.now() - at) / 1000;
    const text = time.dataset.as === "ago" ? ago(seconds) : time.dataset.as === "since" ? ago(seconds).replace(/^in .*|ago$/, "so far")
      : at.toLocaleString(undefined, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
    if (time.textContent !== text) time.textContent = text;
  }
};

// Commands: a button to copy each.
const addCopies = () => {
  if (!navigator.clipboard) return;
  for (const code of document.querySelectorAll("code.command:not([data-copies])")) {
    code.dataset.copies = "";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy ${code.textContent}`);
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    code.after(button);
  }
};

// morph makes an element's children like those of another, and keeps the elements that stay:
// their focus, what is typed in them, and whether their details are open.
const kept = { DETAILS: ["open"], INPUT: ["value", "checked"], TEXTAREA: [], OPTION: ["selected"] };
const morph = (old, fresh) => {
  const added = (node) => node.nodeType === 1 && node.classList.contains("copy");
  for (const button of [...old.children].filter(added)) button.remove();
  const wanted = new Set([...fresh.children].map((child) => child.id).filter(Boolean));
  let place = old.firstChild;
  for (const want of [...fresh.childNodes]) {
    let have = place;
    if (want.id && !(have && have.id === want.id)) {
      have = [...old.children].find((child) => child.id === want.id) || null;
      // Moving an element takes its focus, so what is in its way and not wanted goes first.
      while (have && place && place !== have && !wanted.has(place.id)) {
        const next = place.nextSibling;
        place.remove();
        place = next;
      }
      if (have && have !== place) old.insertBefore(have, place);
    }
    if (!have || have.nodeName !== want.nodeName || (have.id || "") !== (want.id || "")) {
      old.insertBefore(want, place);
      continue;
    }
    place = have.nextSibling;
    if (want.nodeType !== 1) {
      if (have.nodeValue !== want.nodeValue) have.nodeValue = want.nodeValue;
      continue;
    }
    for (const { name, value } of [...want.attributes]) {
      if (!(kept[have.nodeName] || []).includes(name) && have.getAttribute(name) !== value) have.setAttribute(name, value);
    }
    for (const { name } of [...have.attributes]) {
      if (!(kept[have.nodeName] || []).includes(name) && !want.hasAttribute(name)) have.removeAttribute(name);
    }
    if (have.nodeName !== "TEXTAREA") morph(have, want);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
};

// Rows of tables are cards in a narrow window: each cell shows the heading of its column, and an empty one nothing.
document.documentElement.classList.add("script");
const labelCells = () => {
  for (const table of document.querySelectorAll(".scroll table")) {
    const labels = [...table.querySelectorAll("thead th")].map((th) => th.textContent);
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, i) => { if (cell.textContent.trim() || cell.querySelector("svg")) cell.dataset.label = labels[i] || ""; });
    }
  }
};

// Times of forms: UTC for the node, and local for the person.
const offset = (at) => new Date(at).getTimezoneOffset() * 60000;
const moved = (text, by) => { const at = Date.parse(`${text}Z`); return at ? new Date(at + by(at)).toISOString().slice(0, 16) : text; };
const local = new WeakSet(); // the inputs whose values are moved
const moveInputs = () => {
  for (const input of document.querySelectorAll("input[data-utc]")) {
    if (!local.has(input) && input.defaultValue) input.value = moved(input.defaultValue, (at) => -offset(at));
    local.add(input);
  }
};
document.addEventListener("formdata", (event) => {
  for (const input of event.target.querySelectorAll("input[data-utc]")) {
    event.formData.set(input.name, input.value && moved(input.value, () => offset(input.value)));
  }
});

const refresh = () => { showTimes(); addCopies(); labelCells(); moveInputs(); };
refresh();
setInterval(showTimes, 1000);

// The live stream of the page.
const address = document.body.dataset.live, state = document.getElementById("live"), pause = document.getElementById("pause");
if (address && window.EventSource) {
  let source = null;
  const say = (tone, shape, text) => {
    state.hidden = false;
    state.className = `badge ${tone}`;
    if (state.textContent !== `${shape} ${text}`) state.textContent = `${shape} ${text}`;
  };
  const open = () => {
    source = new EventSource(address);
    source.addEventListener("open", () => say("good", "●", "live"));
    source.addEventListener("main", (event) => {
      say("good", "●", "live");
      const fresh = new DOMParser().parseFromString(`<main>${event.data}</main>`, "text/html").querySelector("main");
      morph(document.getElementById("main"), fresh);
      refresh();
    });
    source.addEventListener("same", () => say("good", "●", "live"));
    source.addEventListener("ended", () => location.reload()); // the person must sign in again
    source.addEventListener("problem", (event) => say("bad", "✕", event.data));
    source.addEventListener("error", () => {
      say("bad", "✕", "not connected");
      if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (source && source.readyState === EventSource.CLOSED) open(); }, 10000);
    });
  };
  const close = () => { if (source) source.close(); source = null; };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    if (paused) { close(); say("stop", "‖", "paused"); } else open();
  });
  document.addEventListener("visibilitychange", () => {
    if (pause.getAttribute("aria-pressed") === "true") return;
    if (document.hidden) close(); else if (!source) open();
  });
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
}
