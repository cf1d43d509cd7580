// SPDX-License-Identifier: Apache-2.0
//
// Checks a pack of evidence in the browser, step by step as `ledger.packs.check_pack`, and
// shows the verdict. What a receipt is checked by is in check.js.
import { Refused, checkReceipt, encode, findBadSignature, fromHex, hashNode, includes, isDay, keyAt, parse, readKeys, require, sha256, spell, toHex } from "../service/static/check.js";

const [MANIFEST, EXTRACT] = ["pack.json", "ledger.json"];
const HEX = /^[0-9a-f]{64}$/;

// --- a ZIP whose parts are stored as they are

function readZip(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const damaged = "it is no ZIP file, or is damaged";
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end -= 1;
  require(end >= 0, damaged);
  const parts = new Map();
  let [left, place] = [view.getUint16(end + 10, true), view.getUint32(end + 16, true)];
  try {
    for (; left; left -= 1) {
      require(view.getUint32(place, true) === 0x02014b50, damaged);
      require(view.getUint16(place + 10, true) === 0, "it was packed again by another program");
      const size = view.getUint32(place + 24, true);
      const [name, extra, note] = [28, 30, 32].map((at) => view.getUint16(place + at, true));
      const path = new TextDecoder().decode(bytes.subarray(place + 46, place + 46 + name));
      const local = view.getUint32(place + 42, true);
      require(view.getUint32(local, true) === 0x04034b50, damaged);
      const start = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
      require(!parts.has(path), "it holds two parts of one name");
      require(start + size <= bytes.length, damaged);
      parts.set(path, bytes.subarray(start, start + size));
      place += 46 + name + extra + note;
    }
  } catch (error) {
    if (error instanceof RangeError) throw new Refused(damaged);
    throw error;
  }
  return parts;
}

// --- what a pack says

function readPack(parts) {
  require(parts.has(MANIFEST), `it has no ${MANIFEST}`);
  const pack = parse(parts.get(MANIFEST));
  const { head } = pack;
  const known = "day head key kind parts requests signature since until version";
  require(spell(Object.keys(pack).sort()) === spell(known.split(" ")), "its fields are not those of a pack");
  const shaped =
    pack.kind === "evidence pack" && pack.version === 1 && isDay(pack.day) &&
    [pack.since, pack.until].every((day) => day === "" || isDay(day)) &&
    Array.isArray(pack.requests) && pack.requests.every((one) => /^[0-9a-f]{32}$/.test(one)) &&
    head !== null && typeof head === "object" && head.kind === "head" && head.version === 1 &&
    Number.isSafeInteger(head.size) && HEX.test(head.root) && isDay(head.day) &&
    Object.values(pack.parts).every((digest) => HEX.test(digest)) &&
    [pack, head].every((one) => HEX.test(one.key) && /^[0-9a-f]{128}$/.test(one.signature));
  require(shaped, "a field is not as packs have it");
  return pack;
}

async function compareParts(pack, parts) {
  const failures = [];
  for (const [path, digest] of Object.entries(pack.parts)) {
    if (!parts.has(path)) failures.push(`${path} is missing`);
    else if (toHex(await sha256(parts.get(path))) !== digest) failures.push(`${path} was altered`);
  }
  for (const path of [...parts.keys()].sort()) {
    if (path !== MANIFEST && !Object.hasOwn(pack.parts, path)) failures.push(`${path} was added`);
  }
  return failures;
}

// RFC 9162, section 2.1.4.2, as `merkle.extends` has it.
export async function extendsTree(newer, older, proof) {
  if (!proof.every((one) => HEX.test(one)) || older.size > newer.size) return false;
  if (older.size === 0 || older.size === newer.size) {
    return !proof.length && (older.size === 0 || older.root === newer.root);
  }
  if (!proof.length) return false;
  const size = BigInt(older.size);
  const whole = (size & (size - 1n)) === 0n;
  const [first, ...rest] = (whole ? [older.root, ...proof] : proof).map(fromHex);
  let [place, last] = [size - 1n, BigInt(newer.size) - 1n];
  while (place & 1n) [place, last] = [place >> 1n, last >> 1n];
  let [oldRoot, newRoot] = [first, first];
  for (const sibling of rest) {
    if (last === 0n) return false;
    if (place & 1n || place === last) {
      oldRoot = await hashNode(sibling, oldRoot);
      newRoot = await hashNode(sibling, newRoot);
      while (place && !(place & 1n)) [place, last] = [place >> 1n, last >> 1n];
    } else {
      newRoot = await hashNode(newRoot, sibling);
    }
    [place, last] = [place >> 1n, last >> 1n];
  }
  return last === 0n && toHex(oldRoot) === older.root && toHex(newRoot) === newer.root;
}

async function checkExtract(pack, bytes) {
  const wrong = `${EXTRACT} is not as packs have it`;
  let stated;
  try {
    stated = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes ?? new Uint8Array()));
  } catch {
    throw new Refused(wrong);
  }
  const { entries, proofs, growth } = stated;
  const shaped = Array.isArray(entries) && Array.isArray(proofs) && entries.length === proofs.length;
  require(shaped && growth !== null && typeof growth === "object", wrong);
  for (const [at, spelled] of entries.entries()) {
    const entry = parse(encode(spelled));
    const leaf = await sha256([0], encode(spelled));
    const inside = await includes(pack.head, entry.sequence, leaf, proofs[at]);
    require(inside, `entry ${entry.sequence} of the extract is not in the pack's ledger`);
  }
  return { entries: new Set(entries), growth };
}

async function checkRequests(pack, parts, { entries, growth }, pem, rules) {
  for (const request of pack.requests) {
    const bytes = parts.get(`requests/${request}/receipt.json`);
    require(bytes, `it has no receipt of request ${request}`);
    const verdict = await checkReceipt(bytes, pem, rules);
    const why = verdict.failures.join("; ");
    require(verdict.valid, `the receipt of request ${request} is not valid: ${why}`);
    const { entry, head } = verdict.receipt;
    require(entry.request === request, `the receipt of request ${request} is that of ${entry.request}`);
    require(entries.has(spell(entry)), `the extract has no entry of request ${request}`);
    const leads = await extendsTree(pack.head, head, growth[request] ?? []);
    require(leads, `the ledger of the receipt of request ${request} does not lead to that of the ` +
      "pack: they are not one ledger");
  }
}

/**
 * Return whether a pack is valid: {valid, findings, failures, says}.
 */
export async function checkPack(bytes, pem, rules) {
  const findings = [];
  const refuse = (failures) =>
    ({ valid: false, findings, failures, says: `The pack is not valid: ${failures.join("; ")}.` });
  let [keys, parts, pack] = [];
  try {
    keys = await readKeys(pem);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return refuse([`the list of keys cannot be used: ${error.message}`]);
  }
  try {
    parts = readZip(bytes);
    pack = readPack(parts);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return refuse([`this is not a pack as it was made: ${error.message}`]);
  }
  const bad = await findBadSignature(pack, keys);
  if (bad) return refuse([bad]);
  findings.push(`its list of parts is signed by key ${keyAt(keys, pack.head.size).id}`);
  const failures = await compareParts(pack, parts);
  if (failures.length) return refuse(failures);
  findings.push(`its ${parts.size - 1} parts are those that were packed`);
  try {
    const extract = await checkExtract(pack, parts.get(EXTRACT));
    await checkRequests(pack, parts, extract, pem, rules);
    findings.push(
      `its ${extract.entries.size} entries are in a ledger of ${pack.head.size}, by proofs`,
      `its ${pack.requests.length} receipts are valid, and their ledger leads to that of the pack`,
    );
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return refuse([error.message]);
  }
  const n = pack.requests.length;
  const period = pack.since && ` from ${pack.since} to ${pack.until}`;
  const says =
    `The pack is valid. On ${pack.day} the operator put together and signed evidence about ` +
    `${n} request${n === 1 ? "" : "s"}${period}. Each receipt is valid, and is in one ledger of ` +
    `${pack.head.size} entries. It does not prove ${rules.not_shown.join("; ")}.`;
  return { valid: true, findings, failures: [], says };
}

// --- the page

function make(tag, text, ...children) {
  const element = document.createElement(tag);
  element.textContent = text;
  element.append(...children);
  return element;
}

function show(place, what, verdict) {
  const title = `The ${what} is ${verdict.valid ? "valid" : "not valid"}`;
  const shown = make("div", "", make("h2", title), make("p", verdict.says));
  shown.className = verdict.valid ? "verdict valid" : "verdict fails";
  for (const [name, lines] of [["What was checked", verdict.findings], ["What is wrong", verdict.failures]]) {
    if (lines.length) shown.append(make("h3", name), make("ul", "", ...lines.map((line) => make("li", line))));
  }
  place.replaceChildren(shown);
}

async function check(form) {
  const place = document.querySelector("[data-verdict]");
  const bytes = async (name) => new Uint8Array(await form.elements[name].files[0].arrayBuffer());
  try {
    const rules = JSON.parse(document.getElementById("rules").textContent);
    const pem = new TextDecoder().decode(await bytes("keys"));
    const given = await bytes("pack");
    const isPack = given[0] === 0x50 && given[1] === 0x4b;
    const verdict = isPack ? await checkPack(given, pem, rules) : await checkReceipt(given, pem, rules);
    show(place, isPack ? "pack" : "receipt", verdict);
  } catch (error) {
    const old = error.name === "NotSupportedError" || !globalThis.crypto?.subtle;
    const advice = "this browser cannot check Ed25519 signatures; run expunge verify instead";
    place.replaceChildren(make("h2", "Nothing was checked"), make("p", old ? advice : error.message));
  }
  place.focus();
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-check]")) return;
  event.preventDefault();
  check(event.target);
});
