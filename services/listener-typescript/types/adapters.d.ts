/**
 * For `node:http`: `createServer(nodeHandler(listener))`.
 * @param {Answering} listener
 * @returns {(request: Request, response: Response) => Promise<void>}
 */
export function nodeHandler(listener: Answering): (request: Request, response: Response) => Promise<void>;
/**
 * For Express: `app.post("/deliveries", expressHandler(listener))`, before any `express.json()`; behind
 * `express.raw({ type: "*\/*" })` it takes the buffer that made.
 * @param {Answering} listener
 * @returns {(request: any, response: any) => Promise<void>}
 */
export function expressHandler(listener: Answering): (request: any, response: any) => Promise<void>;
/**
 * For Fastify: `app.register(fastifyPlugin(listener), { path: "/deliveries" })`. Body parsers of the application stay
 * as they are: inside the plugin a body is a buffer.
 * @param {Answering} listener
 * @returns {(instance: any, options: {path?: string}) => Promise<void>}
 */
export function fastifyPlugin(listener: Answering): (instance: any, options: {
    path?: string;
}) => Promise<void>;
/**
 * For servers with a `fetch` handler: `export default { fetch: fetchHandler(listener) }`. Headers that came twice
 * arrive joined there, and no joined value verifies.
 * @param {Answering} listener
 * @returns {(request: globalThis.Request) => Promise<globalThis.Response>}
 */
export function fetchHandler(listener: Answering): (request: globalThis.Request) => Promise<globalThis.Response>;
export type Answering = {
    answer: (incoming: import("./listener.js").Incoming) => Promise<import("./listener.js").Answer>;
    maxBodyBytes: number;
};
export type Request = import("node:http").IncomingMessage;
export type Response = import("node:http").ServerResponse;
