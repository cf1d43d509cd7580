// SPDX-License-Identifier: Apache-2.0
//
// Checks a receipt in the browser, without a network: WebCrypto for SHA-256 and Ed25519,
// and nothing else. It reads the bytes of the receipt, the operator's public keys in PEM
// and the rules that the library generates (`expunge.ledger.receipts.rules`: the JSON
// Schema of receipts, and the words of verdicts), and follows `check_receipt` step by
// step, so that both reach the same verdict.
// What it leaves to `expunge verify` is listed in NOT_CHECKED.

const DEEPEST = 64;
const LARGEST = Number.MAX_SAFE_INTEGER;
// SubjectPublicKeyInfo of Ed25519 up to the key itself (RFC 8410, section 4).
const SPKI = "302a300506032b6570032100";

export const NOT_CHECKED = [
  "whether the figures of each certificate follow from one another, and whether it states " +
    "all that it must: run expunge verify, with the receipt and the same keys",
  "whether the keys are those of the operator: get them from the operator's site",
];

export class Refused extends Error {}

export function require(holds, message) {
  if (!holds) throw new Refused(message);
}

// --- bytes

export const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const encode = (text) => new TextEncoder().encode(text);

export async function sha256(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

// --- canonical JSON (RFC 8785)

// JavaScript's own numbers, escapes and order of strings are those of the standard.
export function spell(value, depth = 0) {
  const inside = value !== null && typeof value === "object";
  require(!inside || depth < DEEPEST, "it is nested too deeply");
  if (Array.isArray(value)) return `[${value.map((one) => spell(one, depth + 1)).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const names = Object.keys(value).sort();
    const parts = names.map((name) => `${spell(name)}:${spell(value[name], depth + 1)}`);
    return `{${parts.join(",")}}`;
  }
  if (typeof value === "string") require(value.isWellFormed(), "it holds half a character");
  return JSON.stringify(value);
}

function read(bytes, ignoreBOM) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM }).decode(bytes);
    return [text, JSON.parse(text)];
  } catch {
    throw new Refused("it is not a JSON document");
  }
}

export function parse(bytes) {
  const [text, found] = read(bytes, true);
  const plain = "it is not in canonical spelling: some byte is not as it was written";
  // A name given twice, a space or another order of names shows here.
  require(spell(found) === text, plain);
  return found;
}

// A shell or an editor adds one line ending, which is no matter.
function withoutNewline(bytes) {
  if (bytes.at(-1) !== 10) return bytes;
  return bytes.slice(0, bytes.at(-2) === 13 ? -2 : -1);
}

// Readers differ on which of two fields of one name counts, so such a text says nothing.
function hasFieldTwice(text) {
  const names = [];
  for (const [token, string, colon] of text.matchAll(/("(?:[^"\\]|\\.)*")(\s*:)?|[{}]/gs)) {
    if (token === "{") names.push(new Set());
    else if (token === "}") names.pop();
    else if (colon) {
      const name = JSON.parse(string);
      if (names.at(-1).has(name)) return true;
      names.at(-1).add(name);
    }
  }
  return false;
}

// The canonical bytes of what a text says, or null if it says nothing.
function spellAgain(bytes) {
  try {
    const [text, found] = read(bytes, false); // some editors put a mark in front
    return hasFieldTwice(text) ? null : encode(spell(found));
  } catch (error) {
    if (error instanceof Refused) return null;
    throw error;
  }
}

function without(document, name) {
  return Object.fromEntries(Object.entries(document).filter(([key]) => key !== name));
}

// --- the shape of a receipt, by its JSON Schema

const TYPES = {
  object: (value) => value !== null && typeof value === "object" && !Array.isArray(value),
  array: Array.isArray,
  string: (value) => typeof value === "string",
  integer: (value) => Number.isInteger(value) && Math.abs(value) <= LARGEST,
  number: (value) => typeof value === "number" && Number.isFinite(value),
  null: (value) => value === null,
};

const RULES = {
  type: (value, wanted) => [wanted].flat().some((name) => TYPES[name](value)),
  const: (value, wanted) => value === wanted,
  enum: (value, wanted) => wanted.includes(value),
  pattern: (value, wanted) => typeof value !== "string" || new RegExp(wanted, "u").test(value),
  format: (value, wanted) => wanted !== "date" || typeof value !== "string" || isDay(value),
  minimum: (value, least) => typeof value !== "number" || value >= least,
  maximum: (value, most) => typeof value !== "number" || value <= most,
  exclusiveMinimum: (value, bound) => typeof value !== "number" || value > bound,
  exclusiveMaximum: (value, bound) => typeof value !== "number" || value < bound,
};

function requireShape(value, schema, place, refer) {
  if (schema.$ref) return requireShape(value, refer(schema.$ref), place, refer);
  for (const [word, rule] of Object.entries(RULES)) {
    const stated = !(word in schema) || rule(value, schema[word]);
    require(stated, `${place} is not as receipts have it`);
  }
  if (schema.not) require(!fits(value, schema.not, refer), `${place} is missing`);
  if (TYPES.array(value) && schema.items) {
    value.forEach((one) => requireShape(one, schema.items, place, refer));
  }
  if (TYPES.object(value)) requireFields(value, schema, place, refer);
  if (schema.if) {
    const then = fits(value, schema.if, refer) ? schema.then : schema.else;
    requireShape(value, then ?? {}, place, refer);
  }
}

function requireFields(value, schema, place, refer) {
  const known = new Map(Object.entries(schema.properties ?? {}));
  for (const name of schema.required ?? []) {
    require(Object.hasOwn(value, name), `${place}.${name} is missing`);
  }
  for (const [name, inner] of Object.entries(value)) {
    if (schema.propertyNames) requireShape(name, schema.propertyNames, `a name in ${place}`, refer);
    const rule = known.get(name) ?? schema.additionalProperties ?? {};
    require(rule !== false, `${place} has a field that receipts do not have`);
    requireShape(inner, rule, `${place}.${name}`, refer);
  }
}

function fits(value, schema, refer) {
  try {
    requireShape(value, schema, "it", refer);
    return true;
  } catch (error) {
    if (error instanceof Refused) return false;
    throw error;
  }
}

export function isDay(text) {
  const time = Date.parse(`${text}T00:00:00Z`);
  return !Number.isNaN(time) && new Date(time).toISOString().slice(0, 10) === text;
}

// --- what fields say beside one another

function requireConsistent(receipt, words) {
  const { entry, handling, certificates } = receipt;
  const named_days = ["backups_until", "retained_until", "notified", "excluded_until"];
  const days = named_days.map((name) => handling[name]);
  require(days.every((day) => day === "" || isDay(day)), "a day in handling is no day");
  const early = entry.submitted <= entry.accepted && entry.submitted <= entry.deadline;
  require(early, "the request came in, or was due, before the person asked");
  require(entry.accepted <= entry.day, "the request was answered before it came in");
  require(entry.outcome !== "refused" || entry.reason, "it was refused without a reason");
  require(!handling.retained_until || handling.retained, "rows are kept without a reason");
  require(!handling.notified === !handling.extended, "an extension without day or reason");
  const ends = handling.exclusion === "until the day stated";
  require(!handling.excluded_until === !ends, "an exclusion without its day, or a day alone");
  const method = stateMethod(handling.exclusion, Object.values(certificates), words);
  require(
    handling.method === method,
    "its method is not that of its certificates and of what it says about later fits",
  );
  const named = spell(Object.keys(entry.certificates).sort());
  const held = spell(Object.keys(certificates).sort());
  require(named === held, "its certificates are not those of the models in the entry");
  const promised = describeGuarantee(entry.right, Object.values(certificates), words);
  require(
    handling.guarantee === promised,
    "the guarantee in words is not what its certificates promise",
  );
}

function stateMethod(exclusion, certificates, words) {
  if (!certificates.length) return exclusion ? "excluded only" : "";
  const statuses = certificates.map((one) => one.status);
  if (statuses.includes("no promise")) return "no promise";
  const noisy = certificates.filter((one) => one.status === "certified");
  if (!noisy.length) return "exact";
  return noisy.every((one) => one.mechanism === words.retrain) ? "retrained" : "certified";
}

function describeGuarantee(right, certificates, words) {
  const statuses = certificates.map((one) => one.status);
  const weakest = Object.keys(words.guarantees).find((word) => statuses.includes(word));
  const epsilon = Math.max(0, ...certificates.map((one) => one.epsilon ?? 0));
  const delta = Math.max(0, ...certificates.map((one) => one.delta ?? 0));
  const limit = stateLimit(epsilon, delta);
  const figures = { limit, epsilon: short(epsilon, 6), delta: short(delta, 6) };
  return fill(words.guarantees[weakest ?? ""], { ...words.effects[right], ...figures });
}

function describeEffect(right, certificates, words) {
  const say = (text, bare) => {
    const found = Object.keys(certificates).filter(
      (name) => (certificates[name].status === "no promise") === bare,
    );
    const models = `model${found.length > 1 ? "s" : ""} ${found.join(", ")}`;
    return found.length ? `${fill(text, { models })} ` : "";
  };
  return say(words.effects[right].effect, false) + say(words.without_promise, true);
}

const fill = (text, parts) => text.replace(/\{(\w+)\}/g, (_, name) => parts[name]);

// As promise.scope.state_limit has it.
function stateLimit(epsilon, delta) {
  const right = (1 + delta * Math.exp(-epsilon)) / (1 + Math.exp(-epsilon));
  const share = Math.min(Math.ceil(1000 * right + 1e-9), 1000);
  return `right at most ${Math.floor(share / 10)}.${share % 10} % of the time`;
}

// A number with so many digits, as printf's %g writes it.
export function short(value, digits) {
  if (value === 0) return "0";
  const [exact, power] = value.toExponential(99).split("e");
  const kept = exact.replace(".", "").slice(0, digits);
  const rest = exact.replace(".", "").slice(digits);
  // In doubt the even digit, as C does; toPrecision takes the larger.
  const half = `5${"0".repeat(rest.length - 1)}`;
  const up = rest > half || (rest === half && Number(kept.at(-1)) % 2 === 1);
  let whole = String(BigInt(kept) + (up ? 1n : 0n));
  let exponent = Number(power);
  if (whole.length > digits) exponent += 1;
  whole = whole.slice(0, digits).replace(/0+$/, "") || "0";
  if (exponent < -4 || exponent >= digits) {
    const sign = exponent < 0 ? "-" : "+";
    const tail = whole.slice(1) && `.${whole.slice(1)}`;
    return `${whole[0]}${tail}e${sign}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  if (exponent < 0) return `0.${"0".repeat(-exponent - 1)}${whole}`;
  const left = whole.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  const right = whole.slice(exponent + 1);
  return right ? `${left}.${right}` : left;
}

// --- the operator's keys, each with the sizes of the heads that it signs

const PEM = /(-----BEGIN PUBLIC KEY-----[^]*?-----END PUBLIC KEY-----)/;

export async function readKeys(pem) {
  const parts = pem.split(PEM);
  const blocks = parts.filter((_, place) => place % 2);
  require(blocks.length, "there is no public key in the list of keys");
  const stated = parts.filter((_, place) => place % 2 === 0).map(readRange);
  const after = stated.pop();
  if (stated.length === 1 && !stated[0].size) stated[0].set("from", 0);
  const ordered = stated.every((lines) => lines.has("from")) && !after.size;
  require(ordered, "not every key in the list is preceded by the sizes that it signs");
  const keys = [];
  for (const [place, block] of blocks.entries()) {
    const raw = readBlock(block);
    const id = toHex(await sha256(fromHex(SPKI), raw));
    keys.push({ raw, id, from: stated[place].get("from"), to: stated[place].get("to") });
  }
  requireHistory(keys);
  return keys;
}

function readRange(text) {
  const found = new Map();
  // Only ASCII has a meaning here, for the ends of lines too.
  for (const line of text.replace(/[^\0-\x7f]/g, "?").split(/[\n\r\v\f\x1c-\x1e]/)) {
    if (!line.toLowerCase().includes("signs-")) continue;
    const match = /^Signs-(From|To): (0|[1-9][0-9]{0,17})[\s\x1f]*$/.exec(line);
    const name = match?.[1].toLowerCase();
    require(match && !found.has(name), "the list of keys has a line that cannot be read");
    found.set(name, Number(match[2]));
  }
  return found;
}

function readBlock(block) {
  const body = block.replace(/-----(BEGIN|END) PUBLIC KEY-----/g, "").replace(/\s/g, "");
  require(/^[A-Za-z0-9+/]+={0,2}$/.test(body) && body.length % 4 === 0, "a key is not in PEM");
  const bytes = Uint8Array.from(atob(body), (letter) => letter.charCodeAt(0));
  const start = toHex(bytes.slice(0, SPKI.length / 2));
  require(bytes.length === 44 && start === SPKI, "a key in the list is not Ed25519");
  return bytes.slice(12);
}

function requireHistory(keys) {
  const message = "the sizes that the keys sign do not follow one another";
  require(keys[0].from === 0 && keys.at(-1).to === undefined, message);
  for (let i = 1; i < keys.length; i++) {
    require(keys[i].from > keys[i - 1].from && keys[i - 1].to === keys[i].from - 1, message);
  }
  require(new Set(keys.map((key) => key.id)).size === keys.length, "a key comes back");
}

export const keyAt = (keys, size) => keys.findLast((key) => key.from <= size);

async function isSigned(document, key) {
  const payload = encode(spell(without(document, "signature")));
  const opened = await crypto.subtle.importKey("raw", key.raw, "Ed25519", false, ["verify"]);
  const signature = fromHex(document.signature);
  return document.key === key.id && crypto.subtle.verify("Ed25519", opened, signature, payload);
}

export async function findBadSignature(receipt, keys) {
  if (!keys.some((key) => key.id === receipt.key)) {
    return (
      `it names key ${receipt.key}, which is not in the list of keys; ask the operator for ` +
      "the newest list of all keys of the ledger"
    );
  }
  const key = keyAt(keys, receipt.head.size);
  if (receipt.key !== key.id) {
    return (
      `its head is over ${receipt.head.size} entries, and by the list of keys another key ` +
      "signs there: the one that it names may have been stolen; ask the operator"
    );
  }
  if (!(await isSigned(receipt, key))) return `it is not signed by key ${receipt.key}`;
  if (!(await isSigned(receipt.head, key))) {
    return `its head is not signed by key ${receipt.key}`;
  }
  return "";
}

// --- the place of the entry in the ledger (RFC 9162, section 2.1.3.2)

export const hashNode = (left, right) => sha256([1], left, right);

export async function includes(head, index, leaf, proof) {
  if (index >= head.size) return false;
  // Parts of another length would have the hash of other parts.
  if (![head.root, ...proof].every((one) => one.length === 64)) return false;
  // Sizes go beyond 32 bits, to which JavaScript's shifts are limited.
  let [place, last] = [BigInt(index), BigInt(head.size - 1)];
  let root = leaf;
  for (const sibling of proof.map(fromHex)) {
    if (last === 0n) return false;
    if (place & 1n || place === last) {
      root = await hashNode(sibling, root);
      while (place && !(place & 1n)) [place, last] = [place >> 1n, last >> 1n];
    } else {
      root = await hashNode(root, sibling);
    }
    [place, last] = [place >> 1n, last >> 1n];
  }
  return last === 0n && toHex(root) === head.root;
}

async function checkPlace({ entry, head, proof }) {
  const leaf = await sha256([0], encode(spell(entry)));
  const inside = await includes(head, entry.sequence, leaf, proof);
  return [
    [
      `the request is entry ${entry.sequence} of a ledger of ${head.size}, by the proof ` +
        "and the signed head",
      inside ? "" : "the proof does not lead from the entry to the head",
    ],
    [
      "the head was not signed before the entry was written",
      head.day >= entry.day ? "" : "the head is older than the entry",
    ],
  ];
}

async function checkCertificates({ entry, certificates }) {
  const found = [];
  for (const [name, certificate] of Object.entries(certificates)) {
    const same = toHex(await sha256(encode(spell(certificate)))) === entry.certificates[name];
    found.push([
      `${name}: the certificate is the one that the ledger names`,
      same ? "" : `${name}: the certificate is not the one in the ledger`,
    ]);
  }
  return found;
}

// --- the verdict

function refuse(findings, failures) {
  const says = `The receipt is not valid: ${failures.join("; ")}.`;
  const left = { notCovered: [], notChecked: NOT_CHECKED };
  return { valid: false, resaved: false, findings, failures, says, ...left };
}

function describe({ entry, certificates, handling }, words) {
  const right = words.rights[entry.right] ?? entry.right;
  const reason = entry.reason && ` (${words.reasons[entry.reason]})`;
  const outcome = `${words.outcomes[entry.outcome] ?? entry.outcome}${reason}`;
  const models = Object.keys(certificates).join(", ") || "none";
  const method = handling.method && `Method: ${handling.method}. `;
  const end = handling.exclusion && fill(words.exclusions[handling.exclusion], {
    day: handling.excluded_until,
  });
  const excluded = end && `Excluded from all later training ${end}. `;
  const late = entry.day > entry.deadline ? ", AFTER its deadline of" : ", by its deadline of";
  return (
    `The operator states that request ${entry.request} (${right}, ${entry.regime}), ` +
    `made on ${entry.submitted} and accepted on ${entry.accepted}, was answered on ` +
    `${entry.day}${late} ${entry.deadline}. Outcome: ${outcome}. ${excluded}People it was ` +
    `about: ${entry.n_subjects}. Models changed: ${models}. ${method}` +
    `${describeEffect(entry.right, certificates, words)}${handling.guarantee} The ` +
    `statement is entry ${entry.sequence} of the ledger and cannot be taken back unnoticed.`
  );
}

function readReceipt(bytes, { schema, words }) {
  const receipt = parse(bytes);
  const refer = (name) => {
    require(name === "certificate.json", "the schema refers to another document");
    return schema.$defs.certificate;
  };
  requireShape(receipt, schema, "the receipt", refer);
  requireConsistent(receipt, words);
  return receipt;
}

/**
 * Return whether a receipt is valid, and what that shows.
 *
 * @param bytes - Uint8Array with the receipt as it was handed over; one newline at its end
 *   is no matter.
 * @param pem - the operator's public keys, as text.
 * @param rules - {schema, words}, as the library generates them.
 * @returns {valid, resaved, findings, failures, says, notCovered, notChecked, receipt}
 */
export async function checkReceipt(bytes, pem, rules) {
  let keys;
  try {
    keys = await readKeys(pem);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return refuse([], [`the list of keys cannot be used: ${error.message}`]);
  }
  const given = withoutNewline(bytes);
  const verdict = await checkBytes(given, keys, rules);
  if (verdict.valid) return verdict;
  const again = spellAgain(given);
  if (!again || toHex(again) === toHex(given)) return verdict;
  const resaved = (await checkBytes(again, keys, rules)).valid;
  return resaved ? { ...refuse([], [rules.words.resaved]), resaved } : verdict;
}

async function checkBytes(bytes, keys, rules) {
  const { words } = rules;
  let receipt;
  try {
    receipt = readReceipt(bytes, rules);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return refuse([], [`this is not a receipt as it was issued: ${error.message}`]);
  }
  const bad = await findBadSignature(receipt, keys);
  if (bad) return refuse([], [bad]);
  const { from, to } = keyAt(keys, receipt.head.size);
  const sizes = to === undefined ? `${from} entries and more` : `${from} to ${to} entries`;
  const found = [
    [`it is signed by key ${receipt.key}`, ""],
    [`that key signs heads over ${sizes}, by the list of keys given`, ""],
    ...(await checkPlace(receipt)),
    ...(await checkCertificates(receipt)),
  ];
  const findings = found.filter(([, failure]) => !failure).map(([finding]) => finding);
  const failures = found.map(([, failure]) => failure).filter(Boolean);
  if (failures.length) return refuse(findings, failures);
  const inner = Object.values(receipt.certificates).flatMap((one) => one.not_covered);
  const aboutKey = to === undefined ? words.as_of_the_list : words.retired;
  const notCovered = [...new Set([...words.not_covered, aboutKey, ...inner])];
  const says = describe(receipt, words);
  const left = { notCovered, notChecked: NOT_CHECKED, receipt };
  return { valid: true, resaved: false, findings, failures, says, ...left };
}
