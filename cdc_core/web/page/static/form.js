// What is typed meanwhile stays, and what was opened stays open, when the checked form comes back.
"use strict";
const isTyped = (name, element) => name === "selected" || (name === "value" && element.localName !== "option");
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element, change) =>
  !isTyped(name, element) && !(name === "open" && element.localName === "details" && change === "remove");

// A button waits for the check that is under way: a request that is cut off would be an error.
const form = document.querySelector("form.new");
form.addEventListener("submit", (event) => {
  if (!form.classList.contains("htmx-request")) return;
  event.preventDefault();
  const button = event.submitter;
  document.body.addEventListener("htmx:afterRequest", () => setTimeout(() => form.requestSubmit(button)), { once: true });
});

// What is written into the file is not overwritten before the form has it.
document.body.addEventListener("htmx:oobBeforeSwap", (event) => {
  const text = event.detail.target.querySelector("#text");
  if (text && text.value !== text.defaultValue) event.detail.shouldSwap = false;
});
document.querySelector("form.text").addEventListener("htmx:afterRequest", (event) => {
  const { xhr, requestConfig } = event.detail;
  if (xhr.status !== 200 || xhr.getResponseHeader("HX-Reswap") === "none") return; // the form stayed as it was
  document.getElementById("text").defaultValue = requestConfig.parameters.text;
});
