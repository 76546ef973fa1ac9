// The questions of this session with their answers, in this tab and for this login only.

const KEY = "knowledge-history";
const MAX_TURNS = 12;
const owner = () => document.querySelector('meta[name="csrf-token"]').content;

export function remembered(view) {
  try {
    const stored = JSON.parse(sessionStorage.getItem(`${KEY}-${view}`) ?? "null");
    return stored?.owner === owner() ? stored.turns : [];
  } catch {
    return [];
  }
}

export function remember(view, turns) {
  let kept = turns.slice(-MAX_TURNS);
  for (;;) {
    try {
      sessionStorage.setItem(`${KEY}-${view}`, JSON.stringify({ owner: owner(), turns: kept }));
      return;
    } catch {
      // The browser's space is used up: the oldest goes first.
      if (kept.length === 0) return;
      kept = kept.slice(1);
    }
  }
}

export const forget = (view) => sessionStorage.removeItem(`${KEY}-${view}`);
