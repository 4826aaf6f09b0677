"use strict";
// Texts of keys, holders and errors come from strangers. They become text nodes, and never markup.
const $ = (id) => document.getElementById(id);
const root = location.pathname.replace(/\/*$/, "/");
const asked = new URLSearchParams(location.search);
const view = { store: asked.get("store") ?? "", prefix: asked.get("prefix") ?? "", after: "" };
let pageNumber = 1;
let about = {};
let locks = { locks: [], next: null, now: 0 };
// The waiters of this process by store and key: most stores know only one of them.
let waitingHere = new Map();
let isAway = false;
let isDown = false;
let source;
const open = new Set();

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Marks that steer the direction of text, and other characters that cannot be seen, are spelled out.
const HIDDEN = /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202f\u2060-\u206f\ufeff]/g;
function visible(text) {
  return String(text).replace(HIDDEN, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

// Keys are stored percent-encoded. A text that is no UTF-8 stays as it is.
function readable(key) {
  try {
    return visible(key.includes("%") ? decodeURIComponent(key) : key);
  } catch {
    return visible(key);
  }
}

function spell(text, className = "") {
  const made = element("span", visible(text ?? ""), "text " + className);
  made.dir = "auto";
  return made;
}

function span(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return Math.max(0, Math.round(ms)) + " ms";
  let rest = Math.round(ms / 1000);
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const words = [];
  for (const [unit, seconds] of units) {
    const count = Math.floor(rest / seconds);
    rest -= count * seconds;
    if (count > 0) words.push(count + unit);
  }
  return words.slice(0, 2).join(" ") || "0s";
}

const since = (at, now) => (at ? span(Math.max(0, now - at)) : "");
const moment = (at) => (at ? new Date(at).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "");
const clock = (at) => new Date(at).toLocaleTimeString();
const place = (holder) => holder.foreign ?? (holder.pid ? holder.host + ":" + holder.pid : holder.host);

// Rows are kept by their id, so that a row which somebody reads or stands on does not move away.
function rows(body, items, id, fill) {
  const old = new Map([...body.children].map((row) => [row.dataset.id, row]));
  let at = body.firstElementChild;
  const seen = new Map();
  for (const item of items) {
    // Two functions may have one name.
    const times = seen.get(id(item)) ?? 0;
    seen.set(id(item), times + 1);
    const key = times === 0 ? id(item) : id(item) + "#" + times;
    let row = old.get(key);
    old.delete(key);
    if (!row) {
      row = element("tr");
      row.dataset.id = key;
    }
    fill(row, item);
    if (row === at) at = at.nextElementSibling;
    else body.insertBefore(row, at);
  }
  for (const row of old.values()) row.remove();
}

function cells(row, values) {
  values.forEach(([name, value], index) => {
    let cell = row.children[index];
    if (!cell) {
      cell = row.appendChild(element("td"));
      cell.dataset.name = name;
    }
    if (value instanceof Node) {
      if (!(cell.firstChild && cell.firstChild.isEqualNode(value))) cell.replaceChildren(value);
    } else if (cell.textContent !== String(value ?? "")) {
      cell.textContent = value ?? "";
    }
  });
}

// A bar is full with as much of the lease as was seen of this hold.
const fullest = new Map();
function lease(holder) {
  if (holder.lease_left === null) return holder.foreign ? "" : "session";
  const id = holder.hold ?? place(holder);
  const full = Math.max(fullest.get(id) ?? 1, holder.lease_left);
  fullest.set(id, full);
  const made = element("div");
  const bar = made.appendChild(element("div", undefined, "bar"));
  const part = Math.min(1, holder.lease_left / full);
  const inner = bar.appendChild(element("i", undefined, part < 0.2 ? "low" : ""));
  inner.style.width = (part * 100).toFixed(0) + "%";
  made.append(span(holder.lease_left));
  return made;
}

const here = (lock) => waitingHere.get(view.store + " " + lock.key) ?? 0;
const waiters = (lock) => Math.max(lock.waiters ?? 0, here(lock));

function showLocks() {
  const order = $("order").value;
  const age = (lock) => lock.holders[0]?.since ?? Infinity;
  const byKey = (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0);
  const by = {
    waiters: (a, b) => waiters(b) - waiters(a) || byKey(a, b),
    age: (a, b) => age(a) - age(b) || byKey(a, b),
    key: byKey,
  };
  const sorted = [...locks.locks].sort(by[order]);
  const shown = sorted.flatMap((lock) => (open.has(lock.name) ? [{ lock }, { lock, isMore: true }] : [{ lock }]));
  rows($("locks-rows"), shown, ({ lock, isMore }) => (isMore ? "more " : "row ") + lock.name, (row, { lock, isMore }) => {
    if (isMore) showDetails(row, lock);
    else showLock(row, lock);
  });
  const names = new Set(locks.locks.map((lock) => lock.name));
  for (const name of open) if (!names.has(name)) open.delete(name);
  const ids = new Set(locks.locks.flatMap((lock) => lock.holders.map((holder) => holder.hold ?? place(holder))));
  for (const id of fullest.keys()) if (!ids.has(id)) fullest.delete(id);
  $("locks-none").hidden = locks.locks.length > 0 || isAway;
  $("locks-none").textContent = locks.next ? "No lock is held in this part; there are further pages." : "Nobody holds a lock here.";
  $("first").disabled = view.after === "";
  $("next").disabled = !locks.next;
  $("place").textContent = "Page " + pageNumber + ", " + locks.locks.length + (locks.locks.length === 1 ? " lock" : " locks");
}

function showLock(row, lock) {
  let button = row.querySelector("button.key");
  if (!button) {
    button = element("button", undefined, "key");
    button.type = "button";
    button.append(spell(""));
    button.addEventListener("click", () => {
      if (!open.delete(lock.name)) open.add(lock.name);
      showLocks();
    });
    row.appendChild(element("td")).append(button);
    row.firstChild.dataset.name = "Key";
  }
  const text = readable(lock.key);
  if (button.firstChild.textContent !== text) button.firstChild.textContent = text;
  button.setAttribute("aria-expanded", String(open.has(lock.name)));
  const [first] = lock.holders;
  const holder = element("span");
  if (first.foreign) holder.append(element("span", "another program", "tag"), " ", spell(first.foreign));
  else holder.append(spell(place(first)));
  if (lock.holder_count > 1) holder.append(" and " + (lock.holder_count - 1) + " more");
  cells(row, [
    ["Key", row.firstChild.firstChild],
    ["Holder", holder],
    ["Function", spell(first.function)],
    ["For", since(first.since, locks.now)],
    ["Lease left", lease(first)],
    ["Waiting", (lock.waiters ?? "not known") + (here(lock) ? ", " + here(lock) + " here" : "")],
  ]);
}

function terms(list, pairs) {
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(element("dt", name));
    list.appendChild(element("dd")).append(value instanceof Node ? value : spell(value));
  }
  return list;
}

function showDetails(row, lock) {
  const details = element("div");
  details.append(terms(element("dl"), [
    ["key", lock.key],
    ["names in the store", lock.names_in_store.join("   ")],
    ["waiting", lock.waiters],
  ]));
  for (const holder of lock.holders) {
    const list = details.appendChild(terms(element("dl"), [
      ["holder", place(holder)],
      ["function", holder.function],
      ["since", holder.since && moment(holder.since)],
      ["hold", holder.hold],
      ["token", holder.token],
      ["permit", holder.slot],
      ["trace", holder.trace],
    ]));
    if (about.token && holder.hold) {
      const button = element("button", "Break this hold…", "danger");
      button.type = "button";
      button.dataset.hold = holder.hold;
      list.appendChild(element("dt"));
      list.appendChild(element("dd")).append(button);
    }
  }
  if (lock.holder_count > lock.holders.length) {
    details.append(element("p", "and " + (lock.holder_count - lock.holders.length) + " further holders", "dim"));
  }
  if (!row.firstChild) {
    const cell = row.appendChild(element("td"));
    cell.colSpan = 6;
    row.className = "more";
    row.addEventListener("click", (event) => {
      const hold = event.target.dataset?.hold;
      const now = locks.locks.find((other) => other.name === lock.name);
      const holder = now?.holders.find((one) => one.hold === hold);
      if (hold && holder) askBreak(now, holder);
    });
  }
  const cell = row.firstChild;
  if (!cell.firstChild || !cell.firstChild.isEqualNode(details)) {
    // A button that somebody stands on stays in place.
    const hold = cell.contains(document.activeElement) ? document.activeElement.dataset.hold : undefined;
    cell.replaceChildren(details);
    if (hold) cell.querySelector("button[data-hold='" + CSS.escape(hold) + "']")?.focus();
  }
}

let order;
function askBreak(lock, holder) {
  order = { store: view.store, name: lock.name, hold: holder.hold };
  $("break-what").replaceChildren(spell(readable(lock.key)), " is held by ", spell(place(holder)), ", hold ", spell(holder.hold), ".");
  $("break-answer").textContent = "";
  $("break-why").value = "";
  $("break").showModal();
  $("break-why").focus();
}

$("break-no").addEventListener("click", () => $("break").close());
$("break-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  let text;
  try {
    const answer = await fetch(root + "break", {
      method: "POST",
      headers: { "content-type": "application/json", "x-dlock-token": about.token },
      body: JSON.stringify({ ...order, why: $("break-why").value }),
    });
    about.token = answer.headers.get("x-dlock-token") ?? about.token;
    const said = await answer.json().catch(() => ({ error: "the service answered " + answer.status }));
    if (said.broken) {
      $("break").close();
      return;
    }
    text = said.error;
  } catch {
    text = "the service does not answer";
  }
  $("break-answer").textContent = visible(text);
});

function showHere({ count, held, waited_count, waited, now }) {
  waitingHere = new Map(waited.map((lock) => [lock.store + " " + lock.key, lock.waiters]));
  rows($("hot-rows"), waited.slice(0, 10), (lock) => lock.store + " " + lock.key, (row, lock) => {
    cells(row, [["Key", spell(readable(lock.key))], ["Store", spell(lock.store)], ["Waiting here", lock.waiters]]);
  });
  $("hot-none").hidden = waited_count > 0;
  $("here-count").textContent = count === 1 ? "It holds one lock." : "It holds " + count + " locks" + (count > held.length ? "; the " + held.length + " longest holds are listed." : ".");
  rows($("held-rows"), held, (lock) => lock.hold, (row, lock) => {
    cells(row, [["Key", spell(readable(lock.key))], ["Store", spell(lock.store)], ["Function", spell(lock.function)], ["For", since(lock.since, now)]]);
  });
}

function lane(name, hint) {
  const label = element("span", undefined, "name");
  label.append(spell(name));
  label.title = visible(hint);
  return [label, element("div", undefined, "track")];
}

function mark(track, from, to, className, hint) {
  const made = track.appendChild(element("i", undefined, className));
  made.style.left = (Math.max(0, from) * 100).toFixed(2) + "%";
  made.style.width = (Math.max(0, Math.min(1, to) - Math.max(0, from)) * 100).toFixed(2) + "%";
  made.title = visible(hint);
}

function showActivity({ cell, cells: width, first, names, trouble, seen }) {
  rows($("busy-rows"), names.slice(0, 10), (one) => one.store + " " + one.name, (row, one) => {
    const name = element("span");
    name.append(spell(one.name), " ", spell(one.template, "dim"));
    cells(row, [["Lock", name], ["Store", spell(one.store)], ["Waiting", one.waiting], ["Held", one.held], ["Longest wait", span(one.longest_wait ?? 0)]]);
  });
  $("busy-none").hidden = names.length > 0;
  const lanes = [];
  for (const one of names.slice(0, 20)) {
    const [label, track] = lane(one.name, one.template + " on " + one.store);
    for (const [at, acquired, handed, waits, refused, lost] of one.cells) {
      const kind = lost ? "lost" : refused ? "refused" : waits ? "waited" : handed ? "handed" : acquired ? "ran" : "";
      const hint = clock(first + at * cell) + ": " + acquired + " taken, " + handed + " of them handed over, " + waits + " long waits, " + refused + " refused or failed, " + lost + " lost";
      if (kind) mark(track, at / width, (at + 1) / width, kind, hint);
    }
    lanes.push(label, track);
  }
  $("lanes").replaceChildren(...lanes);
  const byKey = new Map();
  for (const [store, key, holder, from, to] of seen) {
    const id = store + " " + key;
    if (!byKey.has(id)) byKey.set(id, { store, key, spans: [] });
    byKey.get(id).spans.push({ holder, from, to });
  }
  const whole = cell * width;
  const busiest = [...byKey.values()].sort((a, b) => b.spans.length - a.spans.length || (a.key < b.key ? -1 : 1)).slice(0, 20);
  const holds = busiest.flatMap(({ store, key, spans }) => {
    const [label, track] = lane(readable(key), store);
    spans.forEach(({ holder, from, to }, index) => {
      const hint = holder + ", seen from " + clock(from) + " to " + clock(to);
      mark(track, (from - first) / whole, (to - first) / whole, index % 2 ? "span odd" : "span", hint);
    });
    return [label, track];
  });
  $("holds").replaceChildren(...holds);
  $("trouble").replaceChildren(...trouble.map((one) => {
    const line = element("li", undefined, one.is_loss ? "bad" : "");
    line.append(clock(one.at) + "  ", spell(one.name), " ", spell(one.what));
    return line;
  }));
  $("trouble-none").hidden = trouble.length > 0;
}

function showLeaders({ elections }) {
  rows($("leaders-rows"), elections, (one) => one.store + " " + one.election, (row, one) => {
    const leader = one.leader;
    const name = element("span");
    if (one.error) name.append(spell(one.error, "bad"));
    else if (!leader) name.append(element("span", "nobody", "warn"));
    else name.append(spell(leader.name), " ", spell(leader.pid ? leader.host + ":" + leader.pid : leader.host, "dim"));
    const waiting = (one.waiting ?? "not known") + (one.waiters?.length ? ": " + one.waiters.join(", ") : "");
    cells(row, [["Election", spell(one.election)], ["Leader", name], ["Term", leader?.term ?? ""], ["For", since(leader?.since, locks.now || Date.now())], ["Waiting", spell(one.error ? "" : waiting)]]);
  });
  $("leaders-none").hidden = elections.length > 0;
}

function showStores({ stores }) {
  $("stores-list").replaceChildren(...stores.map((store) => {
    const card = element("div", undefined, "card");
    card.appendChild(element("h3")).append(spell(store.store));
    if (store.error) {
      card.append(spell(store.error, "bad"));
      return card;
    }
    card.append(element("p", "It takes locks."));
    const counts = store.counts.filter(([, count]) => count > 0);
    card.append(terms(element("dl"), [["version", store.version], ["role", store.role], ...store.settings, ...counts]));
    if (store.findings.length > 0) {
      const list = card.appendChild(element("ul"));
      for (const finding of store.findings) list.appendChild(element("li", undefined, "warn")).append(spell(finding));
    }
    return card;
  }));
}

function showTasks({ tasks }) {
  rows($("tasks-rows"), tasks, (task) => task.task, (row, task) => {
    const last = element("span");
    if (task.error) last.append(spell(task.error, "bad"));
    else if (task.keys) last.append("one for each key: ", spell(task.keys.join(", ")));
    else if (task.last) last.append(moment(task.last.started));
    else last.append(element("span", "none yet", "warn"));
    cells(row, [["Task", spell(task.task)], ["Last success", last], ["It took", task.last ? span(task.last.took) : ""], ["On", spell(task.last?.host)], ["Every", span(task.period)], ["Next", moment(task.next)]]);
  });
  $("tasks-none").hidden = tasks.length > 0;
}

function showSites({ sites }) {
  $("sites-list").replaceChildren(...sites.map((site) => {
    const card = element("div", undefined, "card");
    card.appendChild(element("h3")).append(spell(site.name));
    card.append(terms(element("dl"), [["key", site.keys.join(", ")], ["store", site.backend], ["place", site.place], ...Object.entries(site.settings)]));
    return card;
  }));
  $("sites-none").hidden = sites.length > 0;
}

function showAbout(told) {
  about = told;
  const select = $("store");
  const names = [...select.options].map((option) => option.value);
  if (JSON.stringify(names) !== JSON.stringify(told.stores)) {
    select.replaceChildren(...told.stores.map((name) => {
      const option = element("option", visible(name));
      option.value = name;
      return option;
    }));
  }
  // Without a word of the reader the first store is shown.
  if (view.store === "" && told.stores.length > 0) {
    view.store = told.stores[0];
    connect();
  }
  select.value = view.store;
  $("about").textContent = "Process " + told.process + ", namespace " + visible(told.namespace) + ". " + (told.pages === 1 ? "This page is the only one that is open." : told.pages + " pages are open.") + (told.token ? " Holds can be broken." : " Nothing can be changed here.");
}

function state() {
  const text = isDown ? "The service does not answer. It is asked again." : isAway ? "The store does not answer. It is asked again." : "Live";
  if ($("state").textContent !== text) $("state").textContent = text;
  $("state").className = isDown || isAway ? "bad" : "";
  $("locks-rows").classList.toggle("stale", isDown || isAway);
}

const parts = {
  about: showAbout,
  here: showHere,
  activity: showActivity,
  leaders: showLeaders,
  stores: showStores,
  tasks: showTasks,
  sites: showSites,
  locks(told) {
    isAway = told.error !== undefined;
    $("away").hidden = !isAway;
    $("away").textContent = isAway ? visible(told.error) : "";
    // The last picture of a store that is away stays.
    if (!isAway) locks = told;
    showLocks();
  },
};

// The longest time between two signs of life, in milliseconds. The browser itself takes a connection that is silent for open.
const SILENCE = 15000;
let again;
let heard;
function connect() {
  clearTimeout(again);
  source?.close();
  heard = Date.now();
  source = new EventSource(root + "live?" + new URLSearchParams(view));
  for (const [name, show] of Object.entries(parts)) {
    source.addEventListener(name, (event) => {
      heard = Date.now();
      isDown = false;
      show(JSON.parse(event.data));
      state();
    });
  }
  source.addEventListener("alive", () => { heard = Date.now(); });
  source.onerror = () => {
    isDown = true;
    state();
    // The browser asks again by itself, but not after an answer that is an error.
    if (source.readyState === EventSource.CLOSED) again = setTimeout(connect, 3000);
  };
}

setInterval(() => {
  if (Date.now() - heard < SILENCE) return;
  isDown = true;
  state();
  connect();
}, 1000);

function go(change) {
  Object.assign(view, change);
  locks = { locks: [], next: null, now: locks.now };
  history.replaceState(null, "", "?" + new URLSearchParams({ store: view.store, prefix: view.prefix }));
  connect();
}

$("view").addEventListener("submit", (event) => {
  event.preventDefault();
  pageNumber = 1;
  go({ store: $("store").value, prefix: $("prefix").value, after: "" });
});
$("store").addEventListener("change", () => $("view").requestSubmit());
$("order").addEventListener("change", showLocks);
$("first").addEventListener("click", () => { pageNumber = 1; go({ after: "" }); });
$("next").addEventListener("click", () => { pageNumber += 1; go({ after: locks.next }); });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, select, dialog")) {
    event.preventDefault();
    $("prefix").focus();
  }
});
$("prefix").value = view.prefix;
connect();
