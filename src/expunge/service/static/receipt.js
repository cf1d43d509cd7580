// SPDX-License-Identifier: Apache-2.0
//
// Lets a page check a receipt: a form with `data-check`, the receipt and the keys from
// files that a person chooses or from the addresses in `data-receipt` and `data-keys`,
// and an element with `data-verdict` for the answer.

import { checkReceipt } from "./check.js";

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  element.textContent = text;
  element.append(...children);
  return element;
}

function makeList(title, lines) {
  if (!lines.length) return "";
  const list = make("ul", "", ...lines.map((line) => make("li", line)));
  return make("section", "", make("h3", title), list);
}

function show(place, verdict) {
  const fault = verdict.resaved ? "The receipt was saved again" : "The receipt is not valid";
  const title = verdict.valid ? "The receipt is valid" : fault;
  const shown = make("div", "", make("h2", title), make("p", verdict.says));
  shown.className = verdict.valid ? "verdict valid" : "verdict fails";
  shown.append(
    makeList("What was checked", verdict.findings),
    makeList("What is wrong", verdict.failures),
    makeList("What this page does not check", verdict.notChecked),
    makeList("What a receipt says nothing about", verdict.notCovered),
  );
  place.replaceChildren(shown);
}

function showProblem(place, text) {
  const shown = make("div", "", make("h2", "Nothing was checked"), make("p", text));
  shown.className = "verdict";
  place.replaceChildren(shown);
}

async function readPart(form, name) {
  const address = form.dataset[name];
  if (address) {
    const answer = await fetch(address, { cache: "no-store" });
    if (!answer.ok) throw new Error(`${address} answered ${answer.status}`);
    return new Uint8Array(await answer.arrayBuffer());
  }
  const [file] = form.elements[name].files;
  if (!file) throw new Error("choose both files first");
  return new Uint8Array(await file.arrayBuffer());
}

async function check(form) {
  const place = document.querySelector("[data-verdict]");
  try {
    const rules = JSON.parse(document.getElementById("receipt-rules").textContent);
    const receipt = await readPart(form, "receipt");
    const pem = new TextDecoder().decode(await readPart(form, "keys"));
    show(place, await checkReceipt(receipt, pem, rules));
  } catch (error) {
    const old = error.name === "NotSupportedError" || !globalThis.crypto?.subtle;
    const advice = "this browser cannot check Ed25519 signatures; run expunge verify instead";
    showProblem(place, old ? advice : error.message);
  }
  place.focus();
}

// On the document, since the form may come later, when the page renews itself.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-check]")) return;
  event.preventDefault();
  check(event.target);
});
