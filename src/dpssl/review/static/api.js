// Requests to the server. A token in the address has become a cookie by the time this runs.

export class Refused extends Error {}   // the server answered, and said no
export class Unreached extends Error {} // no server there

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { cache: "no-store", ...options });
  } catch {
    throw new Unreached("the server does not answer");
  }
  if (answer.ok) return answer.json();
  if (answer.status === 403) throw new Refused("this page is no longer valid: open the address that dpssl review printed last");
  const body = await answer.json().catch(() => ({}));
  throw new Refused(typeof body.detail === "string" ? body.detail : `the server refused (${answer.status})`);
}

export const get = (path, values = {}) => {
  const given = Object.entries(values).filter(([, value]) => value !== undefined && value !== null);
  return ask(given.length ? `${path}?${new URLSearchParams(given)}` : path);
};

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

export const pictureAddress = (row, large = false) => `/pictures/${row}${large ? "?large=true" : ""}`;
