// The review page: which images are shown, which is chosen, and what is done to it. The server keeps every decision.

import { Unreached, get, post } from "./api.js";
import { drawDetail } from "./detail.js";
import { CLASS_KEYS, HELP, actionOf } from "./keys.js";
import { drawTile, labelText, makeTile } from "./tiles.js";
import { NO_CLASS, UNDECIDED, count, element, find, name } from "./words.js";

const PAGE = 40, POLL = 2000; // images; milliseconds
const state = { about: null, order: "useful", label: 0, text: "", start: null, at: null, view: "grid", images: [], total: 0, version: 0 };
let saving = Promise.resolve(); // decisions are sent one after the other
let asked = 0; // pages and explanations asked for: a late answer to an earlier question is dropped
let keyed = []; // classes that have a button

// Where we are is in the address, so that a reload leads back here

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const number = (key) => (/^\d+$/.test(given.get(key) ?? "") ? Number(given.get(key)) : null);
  state.order = ["useful", "suspects", "class", "search", "reviewed"].includes(given.get("order")) ? given.get("order") : "useful";
  state.label = Math.min(number("label") ?? 0, state.about.classes.length - 1);
  state.text = (given.get("text") ?? "").slice(0, 200);
  state.view = given.get("view") === "single" ? "single" : "grid";
  [state.start, state.at] = [number("start"), number("at")];
}

function writeAddress() {
  const { order, start, at, view } = state;
  const values = new URLSearchParams({ order, start, at, view });
  if (order === "class") values.set("label", state.label);
  if (order === "search") values.set("text", state.text);
  history.replaceState(null, "", `${location.pathname}#${values}`); // also takes the token out of sight
}

// Showing

async function showPage({ order = state.order, label = state.label, text = state.text, start = null, at = null } = {}) {
  const question = ++asked;
  const found = await get("/api/images", { order, label, text, start, count: PAGE });
  if (question !== asked) return;
  Object.assign(state, { order, label, text, start: found.start, images: found.images, total: found.total });
  state.nDecided = found.n_decided;
  const firstOpen = found.images.findIndex((image) => image.decision === UNDECIDED);
  state.at = Math.max(0, Math.min(at ?? (firstOpen < 0 ? 0 : firstOpen), found.images.length - 1));
  find("tiles").replaceChildren(...state.images.map((image, index) => makeTile(image, index, state.about)));
  find("nothing").hidden = state.total > 0;
  find("order").value = order === "class" ? `class-${label}` : order === "search" ? "" : order;
  if (document.activeElement !== find("search")) find("search").value = order === "search" ? text : "";
  showProgress(found);
  choose(state.at, { focus: document.activeElement !== find("search") });
  window.scrollTo(0, 0);
}

function showProgress(found) {
  state.version = found.version;
  find("undo").disabled = !found.can_undo;
  const last = Math.min(state.start + state.images.length, state.total);
  find("place").textContent = state.total ? `${count(state.start + 1)}–${count(last)} of ${count(state.total)}` : "nothing";
  find("before").disabled = state.start === 0;
  find("after").disabled = last >= state.total;
  find("progress").value = state.total ? state.nDecided / state.total : 0;
  find("count").textContent = `${count(state.nDecided)} of these reviewed`;
  const pace = found.session_minutes >= 1 ? `, ${Math.round(found.session_reviewed / found.session_minutes)} a minute` : "";
  const none = found.n_no_class ? `, ${count(found.n_no_class)} of no class` : "";
  find("statistics").textContent =
    `${count(found.n_reviewed)} of ${count(state.about.n_images)} images reviewed, ${count(found.n_changed)} corrected${none}; ` +
    `${count(Math.max(0, found.session_reviewed))} in this session${pace}.`;
}

function choose(at, { focus = true } = {}) {
  const tiles = [...document.querySelectorAll(".tile")];
  for (const tile of tiles) {
    tile.removeAttribute("aria-current");
    tile.tabIndex = -1;
  }
  for (const id of ["correct", "none", "skip", "all-correct"]) find(id).disabled = !tiles.length;
  if (!tiles.length) {
    find("detail").replaceChildren();
    find("classes").replaceChildren();
    writeAddress();
    return;
  }
  state.at = at;
  tiles[at].setAttribute("aria-current", "true");
  tiles[at].tabIndex = 0;
  if (focus) (state.view === "grid" ? tiles[at] : find("detail")).focus({ preventScroll: state.view !== "grid" });
  writeAddress();
  return explain(state.images[at]);
}

async function explain(image) {
  showClasses(image);
  const question = `${asked}/${image.row}`;
  state.explained = question;
  const found = await get(`/api/images/${image.row}`);
  if (state.explained !== question) return;
  drawDetail(find("detail"), found, state.about);
}

// Buttons for the classes; of more than there are keys, for those likely for this image, and a list of all.
function showClasses(image) {
  const { classes } = state.about;
  const labels = classes.length > CLASS_KEYS.length ? image.probabilities.map(([label]) => label) : [...classes.keys()];
  const held = image.decision === UNDECIDED ? image.label : image.decision;
  if (keyed.join() !== labels.join() || !find("classes").children.length) {
    keyed = labels;
    const buttons = labels.map((label, at) => element("button", { type: "button", data: { label } },
      element("kbd", {}, CLASS_KEYS[at]), " ", name(classes[label])));
    find("classes").replaceChildren(...buttons);
    if (labels.length < classes.length) find("classes").append(classList());
  }
  for (const button of find("classes").querySelectorAll("button"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.label) === held));
}

function classList() {
  const list = element("select", { ariaLabel: "Any class" }, element("option", { value: "" }, "any class …"),
    ...state.about.classes.map((text, label) => element("option", { value: label }, text)));
  list.addEventListener("change", () => list.value !== "" && decide(Number(list.value)));
  return element("span", {}, list);
}

function setView(view) {
  state.view = view;
  find("main").className = view;
  for (const kind of ["grid", "single"]) find(`as-${kind}`).setAttribute("aria-pressed", String(kind === view));
  if (state.images.length) choose(state.at);
}

// Doing

const decide = (label) => save([[state.at, label]], { advance: true });

function keepLabel() {
  const image = state.images[state.at];
  if (image.decision === UNDECIDED && image.label < 0) return warn("It has no label to be correct: choose a class.");
  return image.decision === UNDECIDED ? decide(image.label) : step(1);
}

function allCorrect() {
  const open = state.images.flatMap((image, at) => (image.decision === UNDECIDED && image.label >= 0 ? [[at, image.label]] : []));
  return open.length ? save(open, { nextPage: true }) : turn(1);
}

// Shown at once, and taken back where the server could not write it.
function save(changes, { advance = false, nextPage = false }) {
  const before = changes.map(([at]) => [state.images[at], state.images[at].decision]);
  for (const [at, label] of changes) state.images[at].decision = label;
  redraw(before.map(([image]) => image.row));
  const sent = changes.map(([at, label]) => ({ row: state.images[at].row, label }));
  find("spoken").textContent = changes.length > 1 ? `${changes.length} labels correct`
    : `${state.images[changes[0][0]].id}: ${labelText(changes[0][1], state.about.classes)}`;
  saving = saving.then(() => post("/api/decisions", { changes: sent })).then(settle, (problem) => {
    for (const [image, decision] of before) image.decision = decision;
    redraw(sent.map(({ row }) => row));
    complain(problem, `${sent.length === 1 ? "The last decision was" : `${sent.length} decisions were`} not saved`);
  });
  if (nextPage) return saving.then(() => turn(1));
  return advance ? step(1) : saving;
}

function undo() {
  saving = saving.then(() => post("/api/undo")).then((found) => {
    settle(found);
    const at = state.images.findIndex((image) => found.decisions.some(([row]) => row === image.row));
    if (at >= 0) choose(at);
    find("spoken").textContent = found.decisions.length ? "Taken back" : "Nothing to take back";
  }, (problem) => complain(problem, "Nothing was taken back"));
  return saving;
}

// Decisions as the server has them, made on this page or another.
function settle(found) {
  const decisions = new Map(found.decisions);
  for (const image of state.images) {
    if (!decisions.has(image.row)) continue;
    image.decision = decisions.get(image.row);
  }
  redraw([...decisions.keys()]);
  if (found.version !== state.version) refreshCount();
  showProgress(found);
  find("notice").hidden = true;
}

let counting = 0;
async function refreshCount() {
  const turn = ++counting;
  const { order, label, text, start } = state;
  const found = await get("/api/images", { order, label, text, start, count: 1 }).catch(() => null);
  if (!found || turn !== counting || order !== state.order || start !== state.start) return;
  state.nDecided = found.n_decided;
  showProgress(found);
}

function redraw(rows) {
  for (const tile of document.querySelectorAll(".tile")) {
    const image = state.images[Number(tile.dataset.at)];
    if (rows.includes(image.row)) drawTile(tile, image, state.about);
  }
  if (state.images.length && rows.includes(state.images[state.at].row)) explain(state.images[state.at]).catch(() => {});
}

// Moving

function step(by) {
  const at = state.at + by;
  if (at >= 0 && at < state.images.length) return choose(at);
  return by > 0 ? turn(1) : turn(-1, { at: PAGE - 1 });
}

function turn(by, { at = null } = {}) {
  const start = state.start + by * PAGE;
  if (start < 0 || start >= state.total) return;
  return showPage({ start, at });
}

function columns() {
  const tiles = [...document.querySelectorAll(".tile")];
  const below = tiles.findIndex((tile) => tile.offsetTop > tiles[0].offsetTop);
  return state.view === "single" || below < 0 ? 1 : below;
}

function moveRow(by) {
  const at = state.at + by * columns();
  if (at >= 0 && at < state.images.length) choose(at);
}

// Saying what is wrong

function warn(text, kind = "advice") {
  find("notice").textContent = text;
  find("notice").dataset.kind = kind;
  find("notice").hidden = false;
}

// `what` was lost by it, where something was: that stays to be read until the next decision is saved.
function complain(problem, what = "") {
  if (!what && !find("notice").hidden && find("notice").dataset.kind === "lost") return;
  const unreached = problem instanceof Unreached;
  const text = `${what ? `${what}: ` : ""}${problem.message}${unreached ? ". Is dpssl review still running?" : ""}`;
  warn(text, what ? "lost" : unreached ? "unreached" : "refused");
}

const ACTIONS = {
  correct: keepLabel, none: () => decide(NO_CLASS), skip: () => step(1), "all-correct": allCorrect, undo,
  left: () => step(-1), right: () => step(1), up: () => moveRow(-1), down: () => moveRow(1),
  first: () => choose(0), last: () => choose(state.images.length - 1), before: () => turn(-1), after: () => turn(1),
  grid: () => setView("grid"), toggle: () => setView(state.view === "grid" ? "single" : "grid"),
  search: () => find("search").focus(), help: () => find("keys").showModal(), leave: () => choose(state.at),
};
const NEEDS_IMAGE = new Set(["correct", "none", "skip", "all-correct", "left", "right", "up", "down", "first", "last", "class", "leave"]);

async function act({ name: what, at }) {
  if (NEEDS_IMAGE.has(what) && !state.images.length) return;
  try {
    await (what === "class" ? decide(keyed[at]) : ACTIONS[what]());
  } catch (problem) {
    complain(problem);
  }
}

async function poll() {
  if (document.visibilityState !== "visible") return;
  try {
    const found = await get("/api/changes", { since: state.version });
    if (found.version !== state.version) settle(found);
    else if (find("notice").dataset.kind === "unreached") find("notice").hidden = true;
  } catch (problem) {
    complain(problem);
  }
}

function listen() {
  document.addEventListener("keydown", (event) => {
    const action = actionOf(event, keyed.length);
    if (!action) return;
    event.preventDefault();
    act(action);
  });
  find("tiles").addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    choose(Number(tile.dataset.at));
    if (event.detail === 2) setView("single");
  });
  find("classes").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) act({ name: "class", at: keyed.indexOf(Number(button.dataset.label)) });
  });
  for (const id of ["correct", "none", "skip", "all-correct", "undo", "help", "before", "after"])
    find(id).addEventListener("click", () => act({ name: id }));
  for (const view of ["grid", "single"]) find(`as-${view}`).addEventListener("click", () => setView(view));
  find("order").addEventListener("change", ({ target }) => {
    const ofClass = /^class-(\d+)$/.exec(target.value);
    const wanted = ofClass ? { order: "class", label: Number(ofClass[1]) } : { order: target.value };
    target.blur();
    showPage(wanted).catch(complain);
  });
  let typing;
  find("search").addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    const wanted = target.value.trim() ? { order: "search", text: target.value } : { order: "useful" };
    typing = setTimeout(() => showPage(wanted).catch(complain), 150);
  });
  document.addEventListener("visibilitychange", poll);
  setInterval(poll, POLL);
}

async function begin() {
  state.about = await get("/api/run");
  find("run").textContent = state.about.name;
  document.title = `Review of ${state.about.name}`;
  find("by-class").append(...state.about.classes.map((text, label) =>
    element("option", { value: `class-${label}` }, `${text} (${count(state.about.class_counts[label])})`)));
  find("key-rows").append(...HELP.map(([key, meaning]) =>
    element("tr", {}, element("th", { scope: "row" }, element("kbd", {}, key)), element("td", { className: "text" }, meaning))));
  readAddress();
  find("main").className = state.view;
  for (const kind of ["grid", "single"]) find(`as-${kind}`).setAttribute("aria-pressed", String(kind === state.view));
  listen();
  await showPage({ start: state.start, at: state.at });
  document.body.dataset.ready = "true";
}

begin().catch(complain);
