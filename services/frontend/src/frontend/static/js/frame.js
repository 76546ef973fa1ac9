// What every page has: the menu, the theme, and no history left behind by whoever was logged in before.

import { post } from "./api.js";
import { byId } from "./dom.js";

const menu = byId("menu");
document.addEventListener("click", (event) => { if (!menu.contains(event.target)) menu.open = false; });
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && menu.open) {
    menu.open = false;
    menu.querySelector("summary").focus();
  }
});

if (!byId("logout-form")) sessionStorage.clear();
byId("logout-form")?.addEventListener("submit", () => sessionStorage.clear());

// A theme needs no new page. Without this script the form does it with one.
byId("theme-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const theme = event.submitter.value;
  document.documentElement.dataset.theme = theme;
  for (const button of event.target.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.value === theme));
  post("/preferences", { theme, next: "/login" }).catch(() => {});
});
