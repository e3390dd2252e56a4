"""What brokers and the control database answer with when they fail: one reviewed table to the fourteen codes (ET-4).

Beside it stands the table of what destinations answer (`delivery.core.classify`); the reference page shows both. The
code decides: what is transient is asked again, everything else ends the work that asked, and people read why. A name
nobody reviewed is not transient (ET-3). Names are the drivers' own: librdkafka's for brokers, SQLSTATE for PostgreSQL.
"""

from typing import Final

from waybill.contracts.codes import ErrorCode

__all__ = ["BROKER", "DATABASE", "NOT_OWNER", "NO_ANSWER", "NO_POSITION", "UNREVIEWED", "broker_code", "database_code"]

#: What is not in a table: nobody knows what happened.
UNREVIEWED: Final = ErrorCode.AMBIGUOUS_RESULT

#: Another member owns the partition, or we left the group: the fence of every transaction.
NOT_OWNER: Final = frozenset(
    {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH", "FENCED_INSTANCE_ID"}
)
#: There is nowhere to read from: no offset was committed, or its record is gone.
NO_POSITION: Final = frozenset({"_AUTO_OFFSET_RESET", "_NO_OFFSET", "OFFSET_OUT_OF_RANGE"})

_BROKER: Final[dict[ErrorCode, frozenset[str]]] = {
    ErrorCode.TRANSIENT_NETWORK: frozenset(
        [
            "_TRANSPORT",
            "_ALL_BROKERS_DOWN",
            "_RESOLVE",
            "_TIMED_OUT",
            "_TIMED_OUT_QUEUE",
            "_MSG_TIMED_OUT",
            "_WAIT_COORD",
            "_WAIT_CACHE",
            "_RETRY",
            "_DESTROY_BROKER",
            "_INTR",
            "REQUEST_TIMED_OUT",
            "NETWORK_EXCEPTION",
            "REBOOTSTRAP_REQUIRED",
        ]
    ),
    ErrorCode.SOURCE_UNAVAILABLE: frozenset(
        [
            "_IN_PROGRESS",
            "_PREV_IN_PROGRESS",
            "_QUEUE_FULL",
            "_ISR_INSUFF",
            "_UNKNOWN_BROKER",
            "_NODE_UPDATE",
            "_OUTDATED",
            "BROKER_NOT_AVAILABLE",
            "LEADER_NOT_AVAILABLE",
            "NOT_LEADER_FOR_PARTITION",
            "REPLICA_NOT_AVAILABLE",
            "PREFERRED_LEADER_NOT_AVAILABLE",
            "ELIGIBLE_LEADERS_NOT_AVAILABLE",
            "NOT_CONTROLLER",
            "NOT_COORDINATOR",
            "COORDINATOR_NOT_AVAILABLE",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "TRANSACTION_COORDINATOR_FENCED",
            "CONCURRENT_TRANSACTIONS",
            "TRANSACTION_ABORTABLE",
            "NOT_ENOUGH_REPLICAS",
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            "KAFKA_STORAGE_ERROR",
            "OFFSET_NOT_AVAILABLE",
            "UNSTABLE_OFFSET_COMMIT",
            "REBALANCE_IN_PROGRESS",
            "MEMBER_ID_REQUIRED",
            "FENCED_LEADER_EPOCH",
            "UNKNOWN_LEADER_EPOCH",
            "STALE_BROKER_EPOCH",
            "STALE_CTRL_EPOCH",
            "REASSIGNMENT_IN_PROGRESS",
            "FETCH_SESSION_ID_NOT_FOUND",
            "INVALID_FETCH_SESSION_EPOCH",
        ]
    ),
    ErrorCode.RATE_LIMIT: frozenset({"THROTTLING_QUOTA_EXCEEDED"}),
    ErrorCode.AUTH: frozenset(
        [
            "_AUTHENTICATION",
            "_SSL",
            "SASL_AUTHENTICATION_FAILED",
            "ILLEGAL_SASL_STATE",
            "UNSUPPORTED_SASL_MECHANISM",
            "SECURITY_DISABLED",
            "UNACCEPTABLE_CREDENTIAL",
        ]
    ),
    ErrorCode.AUTHZ: frozenset(
        [
            "CLUSTER_AUTHORIZATION_FAILED",
            "GROUP_AUTHORIZATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        ]
    ),
    ErrorCode.NOT_FOUND: NO_POSITION
    | frozenset(
        [
            "_UNKNOWN_TOPIC",
            "_UNKNOWN_PARTITION",
            "_UNKNOWN_GROUP",
            "UNKNOWN_TOPIC_OR_PART",
            "UNKNOWN_TOPIC_ID",
            "TOPIC_EXCEPTION",
            "GROUP_ID_NOT_FOUND",
            "_LOG_TRUNCATION",
        ]
    ),
    ErrorCode.VERSION_CONFLICT: NOT_OWNER
    | frozenset(
        [
            "_FENCED",
            "_ASSIGNMENT_LOST",
            "_MAX_POLL_EXCEEDED",
            "INVALID_PRODUCER_EPOCH",
            "PRODUCER_FENCED",
            "UNKNOWN_PRODUCER_ID",
            "INVALID_PRODUCER_ID_MAPPING",
            "UNRELEASED_INSTANCE_ID",
            "INCONSISTENT_TOPIC_ID",
        ]
    ),
    ErrorCode.POLICY_BLOCK: frozenset({"POLICY_VIOLATION", "GROUP_MAX_SIZE_REACHED"}),
    ErrorCode.VALIDATION: frozenset(
        [
            "_BAD_MSG",
            "_BAD_COMPRESSION",
            "_INVALID_ARG",
            "MSG_SIZE_TOO_LARGE",
            "RECORD_LIST_TOO_LARGE",
            "OFFSET_METADATA_TOO_LARGE",
            "INVALID_MSG",
            "INVALID_MSG_SIZE",
            "INVALID_RECORD",
            "INVALID_TIMESTAMP",
            "INVALID_REQUEST",
            "INVALID_GROUP_ID",
            "INVALID_CONFIG",
            "INVALID_COMMIT_OFFSET_SIZE",
            "INVALID_SESSION_TIMEOUT",
            "INVALID_TRANSACTION_TIMEOUT",
            "INVALID_TXN_STATE",
            "INVALID_REQUIRED_ACKS",
            "INCONSISTENT_GROUP_PROTOCOL",
        ]
    ),
    ErrorCode.PERMANENT_UNSUPPORTED: frozenset(
        [
            "_NOT_IMPLEMENTED",
            "_UNSUPPORTED_FEATURE",
            "_UNKNOWN_PROTOCOL",
            "_NOT_CONFIGURED",
            "UNSUPPORTED_VERSION",
            "UNSUPPORTED_COMPRESSION_TYPE",
            "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            "UNSUPPORTED_ASSIGNOR",
        ]
    ),
    ErrorCode.AMBIGUOUS_RESULT: frozenset(
        [
            "_FAIL",
            "_FATAL",
            "_STATE",
            "_INCONSISTENT",
            "_GAPLESS_GUARANTEE",
            "_PURGE_INFLIGHT",
            "_CRIT_SYS_RESOURCE",
            "UNKNOWN",
            "OUT_OF_ORDER_SEQUENCE_NUMBER",
            "DUPLICATE_SEQUENCE_NUMBER",
        ]
    ),
}

#: A broker's error by its name.
BROKER: Final[dict[str, ErrorCode]] = {name: code for code, names in _BROKER.items() for name in names}

#: PostgreSQL by SQLSTATE: five characters, or a class of two for what is not listed of it.
DATABASE: Final[dict[str, ErrorCode]] = {
    "08": ErrorCode.TRANSIENT_NETWORK,  # connection exception
    "0A": ErrorCode.PERMANENT_UNSUPPORTED,  # feature not supported
    "22": ErrorCode.VALIDATION,  # a value the column cannot take
    "23": ErrorCode.VALIDATION,  # a constraint
    "23505": ErrorCode.VERSION_CONFLICT,  # unique violation: it is there already
    "25": ErrorCode.AMBIGUOUS_RESULT,  # invalid transaction state: our bug
    "25006": ErrorCode.SOURCE_UNAVAILABLE,  # read only: a standby that is to become the primary
    "25P03": ErrorCode.SOURCE_UNAVAILABLE,  # idle in transaction too long: the session was ended, nothing written
    "25P04": ErrorCode.SOURCE_UNAVAILABLE,  # the same for the whole transaction
    "28": ErrorCode.AUTH,  # who we are is not believed
    "3D": ErrorCode.NOT_FOUND,  # no such database
    "3F": ErrorCode.SCHEMA_CHANGED,  # no such schema
    "40": ErrorCode.SOURCE_UNAVAILABLE,  # serialization failure, deadlock: rolled back
    "40003": ErrorCode.AMBIGUOUS_RESULT,  # statement completion unknown
    "42": ErrorCode.VALIDATION,  # a statement that is wrong: our bug
    "42501": ErrorCode.AUTHZ,  # not allowed
    "42703": ErrorCode.SCHEMA_CHANGED,  # no such column
    "42883": ErrorCode.SCHEMA_CHANGED,  # no such function
    "42P01": ErrorCode.SCHEMA_CHANGED,  # no such table
    "53": ErrorCode.SOURCE_UNAVAILABLE,  # disk full, out of memory, too many connections
    "54": ErrorCode.VALIDATION,  # beyond a limit of PostgreSQL
    "55": ErrorCode.SOURCE_UNAVAILABLE,  # a lock not had in time, an object in use
    "57": ErrorCode.SOURCE_UNAVAILABLE,  # shut down, starting up, cancelled by a time-out
    "58": ErrorCode.SOURCE_UNAVAILABLE,  # the operating system below it
    "XX": ErrorCode.AMBIGUOUS_RESULT,  # internal error, damaged data
}
#: No SQLSTATE at all: nobody answered.
NO_ANSWER: Final = ErrorCode.TRANSIENT_NETWORK


def broker_code(name: str) -> ErrorCode:
    """Return the code of a broker's error by its name, as librdkafka spells it."""
    return BROKER.get(name, UNREVIEWED)


def database_code(sqlstate: str | None) -> ErrorCode:
    """Return the code of a database error by its SQLSTATE; None when nobody answered."""
    if sqlstate is None:
        return NO_ANSWER
    return DATABASE.get(sqlstate) or DATABASE.get(sqlstate[:2], UNREVIEWED)
