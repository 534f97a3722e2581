// One image of the grid: a button with its picture, what the run says and what was decided.

import { pictureAddress } from "./api.js";
import { NO_CLASS, UNDECIDED, element, name, probability } from "./words.js";

export function labelText(decision, classes) {
  return decision === NO_CLASS ? "none of the classes" : decision < 0 ? "no label" : classes[decision];
}

export function makeTile(image, at, about) {
  const picture = element("img", {
    src: pictureAddress(image.row), alt: "", className: about.is_pixelated ? "pixels" : "", decoding: "async",
  });
  const tile = element("button", { type: "button", className: "tile", tabIndex: -1, data: { at, row: image.row } }, picture);
  tile.append(element("span", { className: "said" }), element("span", { className: "next" }));
  drawTile(tile, image, about);
  return element("li", {}, tile);
}

// What may change of a tile while it is shown.
export function drawTile(tile, image, about) {
  const [said, next] = tile.querySelectorAll("span");
  const second = image.probabilities[1];
  const believed = image.probabilities.find(([label]) => label === image.label)?.[1] ?? null;
  const runSays = image.label < 0 ? "no label" : about.classes[image.label];
  const { decision } = image;
  const state = decision === UNDECIDED ? "open" : decision === NO_CLASS ? "out" : decision === image.label ? "kept" : "changed";
  tile.dataset.state = state;
  said.replaceChildren(name(state === "open" || state === "kept" ? runSays : labelText(decision, about.classes)));
  const details = [];
  if (state === "kept") details.push("correct");
  else if (state !== "open") details.push("was ", name(runSays));
  else if (image.given) details.push("given label");
  else {
    if (believed !== null) details.push(probability(believed));
    if (second && second[1] >= 0.001) details.push(", or ", name(about.classes[second[0]]));
  }
  if (image.n_alike) details.push(` +${image.n_alike} alike`);
  next.replaceChildren(...details);
  const decided = { open: "", kept: "; decided: correct", changed: `; decided: ${labelText(decision, about.classes)}`,
    out: "; decided: none of the classes" }[state];
  const sure = believed === null ? "" : `, ${probability(believed)}`;
  tile.setAttribute("aria-label", `${image.id}: ${runSays}${sure}${decided}`);
}
