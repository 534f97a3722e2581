// Which key does what. Classes have the digits, then the letters that no command has.

const COMMANDS = {
  Enter: "correct", n: "none", s: "skip", u: "undo", g: "toggle", "/": "search", "?": "help",
  ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down",
  PageUp: "before", PageDown: "after", Home: "first", End: "last", Escape: "grid",
};
export const CLASS_KEYS = [..."1234567890abcdefghijklmnopqrstuvwxyz"].filter((key) => !(key in COMMANDS));

export const HELP = [
  ["1 … 9, 0, a …", "give the class whose button shows the key"],
  ["Enter", "the label is correct"],
  ["n", "none of the classes"],
  ["s or →", "skip: decide later"],
  ["Shift Enter", "every undecided label on the page is correct"],
  ["u or Ctrl Z", "undo the last action"],
  ["← → ↑ ↓, Home, End", "choose an image"],
  ["Page Up, Page Down", "page before, page after"],
  ["Tab, then ↑ ↓", "read on beside the images, where it does not fit"],
  ["g", "grid or single view; Esc: grid"],
  ["/", "search"],
  ["?", "this list"],
];

const TYPED_INTO = "input, select, textarea";
const SCROLLED = "#main.grid #detail", SCROLLING = new Set(["ArrowUp", "ArrowDown"]);

// The action that a key press asks for, or null where it is none of ours.
export function actionOf(event, nClassKeys) {
  const inField = event.target.closest?.(TYPED_INTO);
  if (inField) return event.key === "Escape" ? { name: "leave" } : null;
  if (document.querySelector("dialog[open]")) return null;
  const withControl = event.ctrlKey || event.metaKey;
  if (withControl && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "z") return { name: "undo" };
  if (withControl || event.altKey) return null;
  if (event.key === "Enter" && event.target.closest?.("button:not(.tile), a, summary")) return null; // presses it
  if (SCROLLING.has(event.key) && event.target.closest?.(SCROLLED)) return null; // scrolls what does not fit
  if (event.key === "Enter" && event.shiftKey) return { name: "all-correct" };
  if (event.key in COMMANDS) return { name: COMMANDS[event.key] };
  const at = CLASS_KEYS.indexOf(event.key.toLowerCase());
  return at >= 0 && at < nClassKeys ? { name: "class", at } : null;
}
