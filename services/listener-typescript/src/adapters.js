/**
 * One listener under four kinds of server. Each hands over the raw bytes as they came: a body that something parsed
 * before cannot be verified, and is refused loudly instead of verified over other bytes.
 */
import { Refuse } from "./errors.js";
import { problemAnswer } from "./listener.js";

/**
 * @typedef {{answer: (incoming: import("./listener.js").Incoming) => Promise<import("./listener.js").Answer>, maxBodyBytes: number}} Answering
 * @typedef {import("node:http").IncomingMessage} Request
 * @typedef {import("node:http").ServerResponse} Response
 */

/** A header that came twice has no value, because two readers could pick different ones. @param {Request} request */
function headerOf(request) {
  return (/** @type {string} */ name) => {
    const values = request.headersDistinct[name];
    return values?.length === 1 ? values[0] : undefined;
  };
}

/** @param {AsyncIterable<Uint8Array>} stream @param {number} limit @returns {Promise<Buffer>} one byte more than the limit at most */
async function read(stream, limit) {
  const chunks = [];
  let size = 0;
  for await (const chunk of stream) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > limit) break;
  }
  return Buffer.concat(chunks).subarray(0, limit + 1);
}

/** @param {Response} response @param {import("./listener.js").Answer} answer */
function write(response, { status, headers, body }) {
  response.writeHead(status, { ...headers, "content-length": body.length, ...(status === 413 ? { connection: "close" } : {}) });
  response.end(body);
}

/**
 * For `node:http`: `createServer(nodeHandler(listener))`.
 * @param {Answering} listener
 * @returns {(request: Request, response: Response) => Promise<void>}
 */
export function nodeHandler(listener) {
  return async (request, response) => {
    const header = headerOf(request);
    try {
      const body = await read(request, listener.maxBodyBytes);
      write(response, await listener.answer({ method: request.method ?? "", header, body }));
    } catch {
      response.destroy(); // the client went away
    }
  };
}

/**
 * For Express: `app.post("/deliveries", expressHandler(listener))`, before any `express.json()`; behind
 * `express.raw({ type: "*\/*" })` it takes the buffer that made.
 * @param {Answering} listener
 * @returns {(request: any, response: any) => Promise<void>}
 */
export function expressHandler(listener) {
  const plain = nodeHandler(listener);
  return async (request, response) => {
    if (Buffer.isBuffer(request.body)) {
      const { method, body } = request;
      write(response, await listener.answer({ method, header: headerOf(request), body }));
    } else if (request.body !== undefined || request.readableEnded) {
      const detail = "mount the listener before the body parser: the raw bytes are gone";
      write(response, problemAnswer(new Refuse("SOURCE_UNAVAILABLE", "body_parsed", { status: 500, detail })));
    } else {
      await plain(request, response);
    }
  };
}

/**
 * For Fastify: `app.register(fastifyPlugin(listener), { path: "/deliveries" })`. Body parsers of the application stay
 * as they are: inside the plugin a body is a buffer.
 * @param {Answering} listener
 * @returns {(instance: any, options: {path?: string}) => Promise<void>}
 */
export function fastifyPlugin(listener) {
  return async (instance, { path = "/" }) => {
    instance.removeAllContentTypeParsers();
    /** @param {unknown} _ @param {Buffer} body @param {(error: null, body: Buffer) => void} done */
    const keep = (_, body, done) => done(null, body);
    instance.addContentTypeParser("*", { parseAs: "buffer", bodyLimit: listener.maxBodyBytes + 1 }, keep);
    instance.route({
      method: "POST",
      url: path,
      bodyLimit: listener.maxBodyBytes + 1,
      /** @param {any} request @param {any} reply */
      handler: async (request, reply) => {
        const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
        const answer = await listener.answer({ method: "POST", header: headerOf(request.raw), body });
        return reply.code(answer.status).headers(answer.headers).send(answer.body);
      },
    });
  };
}

/**
 * For servers with a `fetch` handler: `export default { fetch: fetchHandler(listener) }`. Headers that came twice
 * arrive joined there, and no joined value verifies.
 * @param {Answering} listener
 * @returns {(request: globalThis.Request) => Promise<globalThis.Response>}
 */
export function fetchHandler(listener) {
  return async (request) => {
    const stream = /** @type {AsyncIterable<Uint8Array> | null} */ (/** @type {unknown} */ (request.body));
    const body = stream === null ? Buffer.alloc(0) : await read(stream, listener.maxBodyBytes);
    const header = (/** @type {string} */ name) => request.headers.get(name) ?? undefined;
    const answer = await listener.answer({ method: request.method, header, body });
    return new Response(new Uint8Array(answer.body), { status: answer.status, headers: answer.headers });
  };
}
