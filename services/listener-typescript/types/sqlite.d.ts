/**
 * @template {SqliteDatabase} Db
 * @param {Db} database
 * @returns {import("./store.js").Store<Db>}
 */
export function sqliteStore<Db extends SqliteDatabase>(database: Db): import("./store.js").Store<Db>;
export type SqliteStatement = {
    run: (...values: any[]) => unknown;
    get: (...values: any[]) => any;
    all: (...values: any[]) => any[];
};
export type SqliteDatabase = {
    exec: (sql: string) => unknown;
    prepare: (sql: string) => SqliteStatement;
};
export type Claim = import("./store.js").Claim;
