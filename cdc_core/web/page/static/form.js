// What is typed meanwhile stays, and what was opened stays open, when the checked form comes back.
"use strict";
Idiomorph.defaults.ignoreActiveValue = true;
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element, change) =>
  !(name === "open" && element.localName === "details" && change === "remove");
