// The words of a question, marked where a passage has them.

import { h } from "./dom.js";

const STOP = new Set((
  "der die das den dem des ein eine einen einem einer eines und oder aber ist sind war wird werden nicht kein keine wie was wer wo wann warum " +
  "welche welcher welches mit von vom zum zur bei für auf aus nach noch nur auch als dass man mein meine meinen meiner ich sie wir ihr " +
  "the and for are was were not with from that this what when where which who why how does did has have had can could should will its our your " +
  "los las una por para con que como donde cuando del"
).split(" "));
const ENDINGS = /(?:ern|en|er|es|em|ing|ed|e|n|s)$/u;
const LONG_ENOUGH_TO_CUT = 6;

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&");

/** A pattern for the words that are worth marking; null if there is none. */
export function wordsOf(question) {
  const words = question.toLowerCase().match(/[\p{L}\p{N}][\p{L}\p{N}\-/.]*[\p{L}\p{N}]|\p{N}+/gu) ?? [];
  const stems = new Set();
  for (const word of words) {
    if (/\p{N}/u.test(word)) stems.add(escaped(word));
    else if (word.length >= 3 && !STOP.has(word)) {
      stems.add(escaped(word.length >= LONG_ENOUGH_TO_CUT ? word.replace(ENDINGS, "") : word) + "\\p{L}{0,4}");
    }
  }
  if (stems.size === 0) return null;
  const alternatives = [...stems].sort((a, b) => b.length - a.length).join("|");
  return new RegExp(`(?<![\\p{L}\\p{N}])(?:${alternatives})(?![\\p{L}\\p{N}])`, "giu");
}

/** `text` as text nodes and <mark> elements. */
export function marked(text, words) {
  if (!words) return [text];
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(words)) {
    if (match.index > end) parts.push(text.slice(end, match.index));
    parts.push(h("mark", {}, match[0]));
    end = match.index + match[0].length;
  }
  if (end < text.length) parts.push(text.slice(end));
  return parts;
}
