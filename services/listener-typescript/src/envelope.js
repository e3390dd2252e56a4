/**
 * Reading a signed body, strictly, after its signature was checked: a repeated or unknown member, another version, data
 * that are not the last member, are refused. The data stay the producer's bytes.
 */
import { createHash } from "node:crypto";

import { Refuse } from "./errors.js";

export const CONTENT_TYPE = "application/cloudevents+json";
const GAP_TYPE = "waybill.gap-resolution";
const QUERY_TYPE = "waybill.status-query";
const MAX_NUMBER = 2 ** 31 - 1;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/;
/** One member of the head: every value before the data is a string, a whole number or a boolean. */
const MEMBER = /\s*("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")\s*:\s*("(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)|true|false)\s*([,}])/uy;

/**
 * @typedef {object} Command
 * @property {"command"} kind
 * @property {string} deliveryId the same on every attempt
 * @property {string} commandId
 * @property {string} tenant
 * @property {string} destination
 * @property {string} aggregate `type/id`
 * @property {number} sequence
 * @property {string} operationId what to deduplicate the effect on
 * @property {boolean} required
 * @property {string} source
 * @property {string} type
 * @property {Date} issuedAt
 * @property {Date} expiresAt
 * @property {string} contentType
 * @property {string | undefined} dataSchema
 * @property {string | undefined} requestId
 * @property {number | undefined} requestSize
 * @property {number} instructionVersion
 * @property {string | undefined} replaces
 * @property {number} configVersion
 * @property {string} capability
 * @property {number} capabilityVersion
 * @property {string | undefined} legalVersions
 * @property {string | undefined} configVersions
 * @property {"clear" | "sealed" | "reference"} dataForm
 * @property {string | undefined} dataKeyId
 * @property {string | undefined} dataRef
 * @property {string | undefined} dataDigest
 * @property {string | undefined} traceparent
 * @property {Buffer} data the producer's bytes; sealed ones still sealed, none for a reference
 * @property {() => any} json parse clear JSON data; refuses others with VALIDATION
 *
 * @typedef {{sequence: number, deliveryId: string, resolution: "final" | "deferred"}} GapEntry
 * @typedef {{kind: "gap", deliveryId: string, tenant: string, destination: string, aggregate: string, entries: GapEntry[]}} GapResolution
 * @typedef {{kind: "query", queryId: string, tenant: string, destination: string, aggregate: string, deliveryId: string, operationId: string, bodySha256: string}} StatusQuery
 */

/** @param {string} detail @returns {never} */
function malformed(detail) {
  throw new Refuse("VALIDATION", "envelope", { detail });
}

/**
 * Read a body of envelope version 1; throws `Refuse` (VALIDATION, `envelope`) when it is none.
 * @param {Uint8Array} body
 * @returns {Command | GapResolution | StatusQuery}
 */
export function parseEnvelope(body) {
  const { attributes, member, data } = split(body);
  const reader = new Reader(attributes);
  if (reader.maybe("specversion") !== "1.0") malformed("specversion is not 1.0");
  if (reader.take("envelopeversion") !== 1) malformed("this envelope version is unknown here");
  const type = attributes.get("type");
  const found =
    type === GAP_TYPE ? gap(reader, member, data) : type === QUERY_TYPE ? query(reader, member, data) : command(reader, member, data);
  if (attributes.size > 0) malformed("the body has attributes that version 1 does not know");
  return found;
}

/** @param {Uint8Array} body @returns {{attributes: Map<string, unknown>, member: string, data: Buffer}} */
function split(body) {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const mark = ',"data":';
  const at = bytes.indexOf(mark);
  if (at >= 0) {
    if (bytes.at(-1) !== 0x7d) malformed("data are not the last member");
    const data = bytes.subarray(at + mark.length, -1);
    if (parseJson(utf8(data)) === undefined) malformed("the data are not one JSON value");
    return { attributes: flat(utf8(bytes.subarray(0, at)) + "}"), member: "data", data };
  }
  const attributes = flat(utf8(bytes));
  const encoded = attributes.get("data_base64");
  if (encoded === undefined) return { attributes, member: "", data: Buffer.alloc(0) };
  if ([...attributes.keys()].at(-1) !== "data_base64") malformed("data_base64 is not the last member");
  attributes.delete("data_base64");
  const data = Buffer.from(String(encoded), "base64");
  if (data.toString("base64") !== encoded) malformed("data_base64 is not base64");
  return { attributes, member: "data_base64", data };
}

/** @param {Uint8Array} bytes */
function utf8(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return malformed("the body is not UTF-8");
  }
}

/** @param {string} text @returns {{value: any} | undefined} */
function parseJson(text) {
  try {
    return { value: JSON.parse(text) };
  } catch {
    return undefined;
  }
}

/** Read one JSON object of scalars, each member once. @param {string} text @returns {Map<string, unknown>} */
function flat(text) {
  const found = new Map();
  const open = /^\s*\{/.exec(text);
  let at = open ? open[0].length : malformed("the body is not a JSON object");
  for (;;) {
    MEMBER.lastIndex = at;
    const match = MEMBER.exec(text);
    if (match === null) return malformed("the body is not one JSON object with each attribute once");
    const name = JSON.parse(/** @type {string} */ (match[1]));
    if (found.has(name)) malformed("the body is not one JSON object with each attribute once");
    found.set(name, JSON.parse(/** @type {string} */ (match[2])));
    at = MEMBER.lastIndex;
    if (match[3] === "}") break;
  }
  if (text.slice(at).trim() !== "") malformed("something follows the object");
  return found;
}

/** Takes attributes one by one, so that what is left at the end is what nobody knows. */
class Reader {
  /** @param {Map<string, unknown>} left */
  constructor(left) {
    this.left = left;
  }

  /** @param {string} name @returns {unknown} */
  take(name) {
    const value = this.left.get(name);
    this.left.delete(name);
    return value;
  }

  /** @param {string} name @returns {string | undefined} */
  maybe(name) {
    const value = this.take(name);
    return value === undefined || typeof value === "string" ? value : malformed(`attribute ${name} is malformed`);
  }

  /** @param {string} name @returns {string} */
  text(name) {
    return this.maybe(name) || malformed(`attribute ${name} is malformed`);
  }

  /** @param {string} name @param {number} [least] @returns {number} */
  number(name, least = 0) {
    const value = this.take(name);
    const fits = typeof value === "number" && Number.isInteger(value) && value >= least && value <= MAX_NUMBER;
    return fits ? value : malformed(`attribute ${name} is malformed`);
  }

  /** @param {string} name @returns {string} */
  uuid(name) {
    const value = this.text(name);
    return UUID.test(value) ? value : malformed(`attribute ${name} is malformed`);
  }

  /** @param {string} name @returns {Date} */
  instant(name) {
    const value = this.text(name);
    const instant = new Date(value);
    return INSTANT.test(value) && !Number.isNaN(instant.getTime()) ? instant : malformed(`attribute ${name} is malformed`);
  }
}

/** @param {string} contentType */
function isJson(contentType) {
  const essence = /** @type {string} */ (contentType.split(";")[0]).trim().toLowerCase();
  return essence.split("/")[1] === "json" || essence.endsWith("+json");
}

/** @param {Reader} reader @param {string} member @param {Buffer} data @returns {Command} */
function command(reader, member, data) {
  const required = reader.take("required");
  if (typeof required !== "boolean") malformed("attribute required is malformed");
  const form = reader.text("dataform");
  const contentType = reader.text("datacontenttype");
  const clear = form === "clear" && isJson(contentType);
  if (!["clear", "sealed", "reference"].includes(form)) malformed("attribute dataform is malformed");
  if (member !== (form === "reference" ? "" : clear ? "data" : "data_base64")) {
    malformed("how the data came contradicts dataform and datacontenttype");
  }
  return {
    kind: "command",
    deliveryId: reader.uuid("id"),
    commandId: reader.uuid("commandid"),
    tenant: reader.text("tenant"),
    destination: reader.text("destination"),
    aggregate: reader.text("subject"),
    sequence: reader.number("aggregatesequence", 1),
    operationId: reader.text("operationid"),
    required: /** @type {boolean} */ (required),
    source: reader.text("source"),
    type: reader.text("type"),
    issuedAt: reader.instant("time"),
    expiresAt: reader.instant("expiresat"),
    contentType,
    dataSchema: reader.maybe("dataschema"),
    requestId: reader.maybe("requestid"),
    requestSize: reader.left.has("requestsize") ? reader.number("requestsize", 1) : undefined,
    instructionVersion: reader.number("instructionversion"),
    replaces: reader.left.has("replaces") ? reader.uuid("replaces") : undefined,
    configVersion: reader.number("configversion"),
    capability: reader.text("capability"),
    capabilityVersion: reader.number("capabilityversion"),
    legalVersions: reader.maybe("legalversions"),
    configVersions: reader.maybe("configversions"),
    dataForm: /** @type {Command["dataForm"]} */ (form),
    dataKeyId: reader.maybe("datakeyid"),
    dataRef: reader.maybe("dataref"),
    dataDigest: reader.maybe("datadigest"),
    traceparent: reader.maybe("traceparent"),
    data,
    json() {
      if (form !== "clear") throw new Refuse("VALIDATION", "data_not_clear");
      return (parseJson(data.toString("utf8")) ?? refuseData()).value;
    },
  };
}

/** @returns {never} */
function refuseData() {
  throw new Refuse("VALIDATION", "data_not_json");
}

/** @param {Reader} reader @param {string} member @param {Buffer} data */
function notice(reader, member, data) {
  reader.text("type");
  const isClear = reader.text("dataform") === "clear" && reader.text("datacontenttype") === "application/json";
  if (!isClear || member !== "data") malformed("such an event lists its data as clear JSON");
  reader.text("source");
  reader.instant("time");
  reader.number("configversion");
  return {
    id: reader.uuid("id"),
    tenant: reader.text("tenant"),
    destination: reader.text("destination"),
    aggregate: reader.text("subject"),
    said: parseJson(data.toString("utf8"))?.value,
  };
}

/** @param {Reader} reader @param {string} member @param {Buffer} data @returns {GapResolution} */
function gap(reader, member, data) {
  const { id, tenant, destination, aggregate, said } = notice(reader, member, data);
  const listed = said?.resolved;
  if (!Array.isArray(listed) || listed.length === 0 || Object.keys(said).length !== 1) malformed("no list of resolved sequences");
  const entries = listed.map(gapEntry);
  if (entries.some((entry, at) => at > 0 && entry.sequence <= /** @type {GapEntry} */ (entries[at - 1]).sequence)) {
    malformed("the entries of the gap resolution are not ascending");
  }
  return { kind: "gap", deliveryId: id, tenant, destination, aggregate, entries };
}

/** @param {any} item @returns {GapEntry} */
function gapEntry(item) {
  const { sequence, delivery_id: deliveryId, resolution, ...others } = item ?? {};
  const fits = Number.isInteger(sequence) && sequence >= 1 && sequence <= MAX_NUMBER && UUID.test(String(deliveryId));
  if (!fits || Object.keys(others).length > 0 || (resolution !== "final" && resolution !== "deferred")) {
    malformed("the entries of the gap resolution are malformed");
  }
  return { sequence, deliveryId, resolution };
}

/** @param {Reader} reader @param {string} member @param {Buffer} data @returns {StatusQuery} */
function query(reader, member, data) {
  const { id, tenant, destination, aggregate, said } = notice(reader, member, data);
  const { delivery_id: deliveryId, operation_id: operationId, body_sha256: bodySha256, ...others } = said ?? {};
  const fits = UUID.test(String(deliveryId)) && typeof operationId === "string" && /^[0-9a-f]{64}$/.test(String(bodySha256));
  if (!fits || Object.keys(others).length > 0) malformed("the data of the status query are malformed");
  return { kind: "query", queryId: id, tenant, destination, aggregate, deliveryId, operationId, bodySha256 };
}

/** SHA-256 over what is to be done, the same for two deliveries that ask for the same thing. @param {Command} command */
export function operationDigest(command) {
  const digest = createHash("sha256");
  const { type, aggregate, contentType, dataForm, dataRef = "", dataDigest = "" } = command;
  for (const part of [type, aggregate, contentType, dataForm, dataRef, dataDigest]) {
    const text = Buffer.from(part);
    const length = Buffer.alloc(4);
    length.writeUInt32BE(text.length);
    digest.update(length).update(text);
  }
  return digest.update(command.data).digest("hex");
}
