// Numbers and elements. Names come from others: they only ever become text nodes, each in a <bdi>.

export const UNDECIDED = -2, NO_CLASS = -1;

const whole = new Intl.NumberFormat("en");
export const count = (number) => whole.format(number);

export function probability(share) {
  if (share >= 0.9995) return "> 99.9 %";
  return share > 0 && share < 0.0005 ? "< 0.1 %" : `${(100 * share).toFixed(1)} %`;
}

export function element(tag, properties = {}, ...children) {
  const { data, ...rest } = properties;
  const made = Object.assign(document.createElement(tag), rest);
  if (data) Object.assign(made.dataset, data);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const name = (text) => element("bdi", {}, text);

export const find = (id) => document.getElementById(id);
