// Calls to this page's own server. The session's cookie goes along by itself; the CSRF token goes into a header.

import { h } from "./dom.js";
import { known, t } from "./i18n.js";

/** A refusal or a failure, with a stable code and a sentence in the page's language. */
export class Failure extends Error {
  constructor(status, code, detail = "") {
    super(known(`problem.${code}`) ? t(`problem.${code}`) : t("problem.other"));
    this.status = status;
    this.code = code;
    this.detail = detail;
  }
}

const csrf = () => document.querySelector('meta[name="csrf-token"]').content;

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", redirect: "error", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "offline");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new Failure(response.status, problem.code ?? "other", problem.detail);
}

function posted(body, signal) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf() };
  return { method: "POST", headers, body: JSON.stringify(body), signal };
}

export const getJson = async (path, signal) => (await send(path, { signal })).json();
export const postJson = async (path, body, signal) => (await send(path, posted(body, signal))).json();
export const post = (path, fields) =>
  send(path, { method: "POST", headers: { "X-CSRF-Token": csrf() }, body: new URLSearchParams(fields), redirect: "follow" });

/** POST, and hand each server-sent event to `take(name, data)` as it comes. */
export async function stream(path, body, take, signal) {
  const response = await send(path, posted(body, signal));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  try {
    for (let part = await next(reader); !part.done; part = await next(reader)) {
      waiting += part.value.replaceAll("\r\n", "\n");
      const blocks = waiting.split("\n\n");
      waiting = blocks.pop();
      for (const block of blocks) handOver(block, take);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "offline");
  }
}

function handOver(block, take) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  if (data.length === 0) return;
  const value = JSON.parse(data.join("\n"));
  if (name === "error") throw new Failure(value.status ?? 0, value.code ?? "other", value.detail);
  take(name, value);
}

/** What a failed call looks like on a page; a session that is over leads to the login. */
export function failureNote(error) {
  if (!(error instanceof Failure)) reportError(error);
  const parts = [error instanceof Failure ? error.message : t("problem.other")];
  if (error.code === "invalid_request" && error.detail) parts.push(` (${error.detail})`);
  const here = encodeURIComponent(location.pathname + location.search);
  const way = error.status === 401 ? h("a", { href: `/login?next=${here}`, class: "button small" }, t("login.again")) : null;
  return h("p", { class: "failure", role: "alert", "data-code": error.code ?? "other" }, parts, way ? [" ", way] : null);
}
