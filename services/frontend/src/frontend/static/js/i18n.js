// Messages of the page's language, and numbers and times as it writes them.

const messages = JSON.parse(document.getElementById("messages").textContent);
const language = document.documentElement.lang;
const plurals = new Intl.PluralRules(language);

/** A message; {name} in it stands for a value. A key that is missing shows itself. */
export function t(key, values = {}) {
  const message = messages[key] ?? key;
  return message.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export const known = (key) => key in messages;

/** `key.one` or `key.other`, by the number. */
export function plural(key, count, values = {}) {
  return t(`${key}.${plurals.select(count) === "one" ? "one" : "other"}`, { count: number(count), ...values });
}

export function number(value, digits = 0) {
  return new Intl.NumberFormat(language, { maximumFractionDigits: digits, minimumFractionDigits: digits }).format(value);
}

/** Milliseconds for a person: 0.6 ms, 87 ms, 1.24 s. */
export function duration(ms) {
  return ms < 999.5 ? `${number(ms, ms < 10 ? 1 : 0)} ms` : `${number(ms / 1000, ms < 10000 ? 2 : 1)} s`;
}

export function clock(seconds, withDate = false) {
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", ...(withDate ? { day: "2-digit", month: "2-digit" } : {}) };
  return new Intl.DateTimeFormat(language, options).format(new Date(seconds * 1000));
}

export function shortClock(seconds) {
  return new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" }).format(new Date(seconds * 1000));
}

/** The name of a language code in the page's language: `de` is German, or Deutsch. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames([language], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
