// Why the run believes what it does of one image.

import { pictureAddress } from "./api.js";
import { labelText } from "./tiles.js";
import { count, element, name, probability } from "./words.js";

const MOST_LFS = 12, WORTH_NAMING = 0.001;

export function drawDetail(place, found, about) {
  const believed = found.probabilities.find(([label]) => label === found.label)?.[1];
  const says = found.label < 0
    ? ["No labeling function has a vote on it."]
    : [found.given ? "Its given label is " : "The run says ", element("strong", {}, name(about.classes[found.label])),
       believed === undefined ? "." : `, with ${probability(believed)}.`];
  place.replaceChildren(
    element("img", {
      src: pictureAddress(found.row, true), alt: `Picture of ${found.id}`, className: about.is_pixelated ? "large pixels" : "large",
    }),
    element("div", { className: "why" },
      element("h2", {}, name(found.id)),
      element("p", {}, ...says),
      ...probabilities(found, about),
      ...votes(found, about),
      ...neighbours(found, about),
      ...history(found, about)),
  );
}

function probabilities(found, about) {
  if (!found.probabilities.length) return [];
  const rows = found.probabilities.filter(([, share], at) => at === 0 || share >= WORTH_NAMING).map(([label, share]) => element("li", {},
    name(about.classes[label]),
    element("meter", { value: share, min: 0, max: 1, ariaLabel: `Probability of ${about.classes[label]}` }),
    element("span", { className: "share" }, probability(share))));
  return [element("h3", {}, "Probabilities"), element("ol", { className: "probabilities" }, ...rows)];
}

function votes(found, about) {
  if (!found.votes.length) return [];
  const voting = found.votes.reduce((sum, group) => sum + group.lfs.length, 0);
  const groups = found.votes.map((group) => element("li", {},
    element("strong", {}, name(about.classes[group.label])), `, ${group.lfs.length === 1 ? "one" : count(group.lfs.length)}: `,
    ...group.lfs.slice(0, MOST_LFS).map((lf) => element("span", { className: "lf", title: aboutLF(lf, about) },
      `LF ${lf.lf} `, element("span", { className: "share" }, probability(lf.confidence)))),
    group.lfs.length > MOST_LFS ? ` and ${group.lfs.length - MOST_LFS} more` : null));
  return [
    element("h3", {}, `Votes of ${count(voting)} of ${count(about.n_lfs)} labeling functions`),
    element("ul", { className: "votes" }, ...groups),
  ];
}

function aboutLF(lf, about) {
  const knows = lf.specialties.slice(0, 8).map((label) => about.classes[label]).join(", ");
  const right = lf.accuracy === null ? "" : `; estimated to be right on ${probability(lf.accuracy)}`;
  return `Labeling function ${lf.lf} knows ${knows}${right}`;
}

function neighbours(found, about) {
  if (!found.neighbours.length) return [];
  const items = found.neighbours.map(({ row, label }) => element("li", {},
    element("img", { src: pictureAddress(row), alt: "", className: about.is_pixelated ? "pixels" : "" }),
    name(about.classes[label])));
  return [element("h3", {}, "Given labels that look most alike"), element("ul", { className: "pictures" }, ...items)];
}

function history(found, about) {
  if (!found.history.length) return [];
  const items = found.history.map(({ decision, who, when }) => element("li", {},
    decision === -2 ? "taken back" : name(labelText(decision, about.classes)), " by ", name(who), ` ${when.slice(0, 16).replace("T", " ")}`));
  return [element("h3", {}, "Decisions"), element("ul", { className: "votes" }, ...items)];
}
