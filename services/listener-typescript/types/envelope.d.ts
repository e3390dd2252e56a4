/**
 * Read a body of envelope version 1; throws `Refuse` (VALIDATION, `envelope`) when it is none.
 * @param {Uint8Array} body
 * @returns {Command | GapResolution | StatusQuery}
 */
export function parseEnvelope(body: Uint8Array): Command | GapResolution | StatusQuery;
/** SHA-256 over what is to be done, the same for two deliveries that ask for the same thing. @param {Command} command */
export function operationDigest(command: Command): string;
export const CONTENT_TYPE: "application/cloudevents+json";
export type Command = {
    kind: "command";
    /**
     * the same on every attempt
     */
    deliveryId: string;
    commandId: string;
    tenant: string;
    destination: string;
    /**
     * `type/id`
     */
    aggregate: string;
    sequence: number;
    /**
     * what to deduplicate the effect on
     */
    operationId: string;
    required: boolean;
    source: string;
    type: string;
    issuedAt: Date;
    expiresAt: Date;
    contentType: string;
    dataSchema: string | undefined;
    requestId: string | undefined;
    requestSize: number | undefined;
    instructionVersion: number;
    replaces: string | undefined;
    configVersion: number;
    capability: string;
    capabilityVersion: number;
    legalVersions: string | undefined;
    configVersions: string | undefined;
    dataForm: "clear" | "sealed" | "reference";
    dataKeyId: string | undefined;
    dataRef: string | undefined;
    dataDigest: string | undefined;
    traceparent: string | undefined;
    /**
     * the producer's bytes; sealed ones still sealed, none for a reference
     */
    data: Buffer;
    /**
     * parse clear JSON data; refuses others with VALIDATION
     */
    json: () => any;
};
export type GapEntry = {
    sequence: number;
    deliveryId: string;
    resolution: "final" | "deferred";
};
export type GapResolution = {
    kind: "gap";
    deliveryId: string;
    tenant: string;
    destination: string;
    aggregate: string;
    entries: GapEntry[];
};
export type StatusQuery = {
    kind: "query";
    queryId: string;
    tenant: string;
    destination: string;
    aggregate: string;
    deliveryId: string;
    operationId: string;
    bodySha256: string;
};
