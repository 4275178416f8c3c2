"use strict";
const darkWished = matchMedia("(prefers-color-scheme: dark)"), root = document.documentElement;
function theme() { root.dataset.theme = (/dark|light/.exec(location.hash) || [darkWished.matches ? "dark" : "light"])[0]; }
theme();
addEventListener("hashchange", theme);
darkWished.addEventListener("change", theme);
