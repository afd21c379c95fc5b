"use strict";
(() => {
  const form = document.getElementById("find"), query = document.getElementById("q"), kind = document.getElementById("kind");
  const said = document.getElementById("found");
  const rows = [...document.querySelectorAll(".row")];
  let texts = null, hits = [], at = -1, opened = [], places = new Map(), wanted = "[\"\",[]]";

  const words = () => (query.value.toLowerCase().match(/"[^"]+"|\S+/g) ?? []).map((word) => word.replaceAll('"', "")).filter(Boolean);
  const matches = (index, terms) =>
    (!kind.value || (kind.value === "problems" ? rows[index].classList.contains("bad") : rows[index].dataset.k === kind.value)) &&
    terms.every((term) => texts[index].includes(term));

  const unfold = (terms) => {
    for (const row of hits) {
      const line = row.querySelector(".line").textContent.toLowerCase(), fold = row.querySelector("details:not([open])");
      if (fold && !terms.every((term) => line.includes(term))) { fold.open = true; opened.push(fold); }
    }
  };

  // What was found is painted, not written: the page stays as it is. Only where it is few enough to look at.
  const mark = (terms) => {
    places = new Map();
    if (!globalThis.Highlight) return;
    const painted = new Highlight();
    for (const row of terms.length && hits.length <= 200 ? hits : []) {
      const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
      for (let node = walker.nextNode(); node && painted.size < 3000; node = walker.nextNode()) {
        const text = node.data.toLowerCase();
        for (const term of terms)
          for (let from = text.indexOf(term); from >= 0 && painted.size < 3000; from = text.indexOf(term, from + term.length)) {
            if (from + term.length > node.data.length) break;
            const range = new Range();
            range.setStart(node, from);
            range.setEnd(node, from + term.length);
            painted.add(range);
            if (!places.has(row) && node.parentElement.tagName === "PRE") places.set(row, range);
          }
      }
    }
    CSS.highlights.set("found", painted);
  };

  const filter = () => {
    const terms = words(), all = !terms.length && !kind.value;
    const key = JSON.stringify([kind.value, terms]);
    if (key === wanted) return;
    wanted = key;
    if (terms.length && !texts) texts = rows.map((row) => row.textContent.toLowerCase());
    for (const row of hits) row.classList.remove("hit", "now");
    for (const fold of opened) fold.open = false;
    hits = []; at = -1; opened = [];
    const shown = new Set(), chunks = new Set(), sections = new Set();
    rows.forEach((row, index) => {
      if (all || !matches(index, terms)) return;
      shown.add(row.parentElement);
      hits.push(row);
    });
    for (const item of all ? [] : shown) chunks.add(item.parentElement);
    for (const chunk of chunks) sections.add(chunk.parentElement);
    for (const item of document.querySelectorAll(".item")) item.hidden = !all && !shown.has(item);
    for (const chunk of document.querySelectorAll(".chunk")) chunk.hidden = !all && !chunks.has(chunk);
    for (const section of document.querySelectorAll(".step")) section.hidden = !all && !sections.has(section);
    for (const section of document.querySelectorAll("#report, #problems, #approvals")) section.hidden = !all;
    if (terms.length) for (const row of hits) row.classList.add("hit");
    if (terms.length && hits.length <= 40) unfold(terms);
    mark(terms);
    said.textContent = all ? "" : `${hits.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} events`;
    said.classList.toggle("none", !all && !hits.length);
  };

  const uncover = (row) => {  // a long text scrolls in itself: to the first place that was found in it
    const range = places.get(row), box = range?.startContainer.parentElement;
    if (box?.scrollHeight > box?.clientHeight) box.scrollTop += range.getBoundingClientRect().top - box.getBoundingClientRect().top - 40;
  };

  const step = (by) => {
    if (!hits.length) return;
    hits[at]?.classList.remove("now");
    at = at < 0 && by < 0 ? hits.length - 1 : (at + by + hits.length) % hits.length;
    hits[at].classList.add("now");
    const hit = hits[at], show = () => hit.scrollIntoView({block: "center"});
    show();
    requestAnimationFrame(() => { show(); uncover(hit); });
    said.textContent = `${(at + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}`;
  };

  const clear = () => { query.value = ""; kind.value = ""; filter(); };

  const land = () => {
    const row = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!row) return;
    if (row.closest("[hidden]")) clear();
    for (const fold of row.querySelectorAll("details")) fold.open = true;
    const show = () => row.scrollIntoView({block: row.offsetHeight > innerHeight / 2 ? "start" : "center"});
    show();
    requestAnimationFrame(() => { show(); requestAnimationFrame(show); });  // what came into view has its true height now
  };

  let waiting = 0;
  query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, 120); });
  kind.addEventListener("change", filter);
  form.addEventListener("submit", (event) => { event.preventDefault(); filter(); step(1); });
  document.getElementById("before").addEventListener("click", () => { filter(); step(-1); });
  document.getElementById("clear").addEventListener("click", clear);
  addEventListener("hashchange", land);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) land();
  });
  addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) { event.preventDefault(); query.focus(); query.select(); }
    if (event.key === "Escape" && typing) { clear(); document.activeElement.blur(); }
    if (event.key === "Enter" && event.shiftKey && document.activeElement === query) { event.preventDefault(); filter(); step(-1); }
  });
  form.hidden = false;
  filter();
  if (location.hash) land();
})();
