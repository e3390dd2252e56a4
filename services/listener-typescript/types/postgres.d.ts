/**
 * @param {PgPool} pool
 * @param {{schema?: string, lockTimeoutMs?: number}} [options] the schema of the records; how long a duplicate waits
 * @returns {import("./store.js").Store<PgClient>}
 */
export function postgresStore(pool: PgPool, { schema, lockTimeoutMs }?: {
    schema?: string;
    lockTimeoutMs?: number;
}): import("./store.js").Store<PgClient>;
export type PgClient = {
    query: (text: string, values?: any[]) => Promise<{
        rows: any[];
        rowCount: number | null;
    }>;
    release: (destroy?: any) => void;
};
export type PgPool = {
    connect: () => Promise<PgClient>;
};
export type Claim = import("./store.js").Claim;
