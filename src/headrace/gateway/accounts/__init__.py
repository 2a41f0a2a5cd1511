"""Keys, limits and budgets, reserved before a request and settled after it.

`Accounts` is what requests use; `Counters` counts in memory or in Redis; `AccountStore` keeps what
has to outlive the process.
"""

from headrace.gateway.accounts.accounts import Accounts, AccountsState
from headrace.gateway.accounts.alert import Alert
from headrace.gateway.accounts.caller import Actual, Caller, Demand
from headrace.gateway.accounts.counters import Counters, CountersState, Reading
from headrace.gateway.accounts.errors import (
    AccountsError,
    BlockedKeyError,
    ExpiredKeyError,
    LimitExceededError,
    ModelNotAllowedError,
    RefusedKeyError,
    StoreBusyError,
    StoreError,
    StoresDownError,
    UnknownKeyError,
    UnknownPriceError,
)
from headrace.gateway.accounts.key import NewKey, Secret, make_key, secret_of
from headrace.gateway.accounts.memory_counters import MemoryCounters
from headrace.gateway.accounts.records import Group, KeyRecord, Parent, Records
from headrace.gateway.accounts.redis_counters import RedisCounters
from headrace.gateway.accounts.redis_link import connect
from headrace.gateway.accounts.reservation import Reservation, Settled
from headrace.gateway.accounts.sqlite_store import SqliteStore
from headrace.gateway.accounts.store import AccountStore
from headrace.gateway.accounts.terms import Budget, DataPolicy, Limits, Terms

__all__ = [
    "AccountStore",
    "Accounts",
    "AccountsError",
    "AccountsState",
    "Actual",
    "Alert",
    "BlockedKeyError",
    "Budget",
    "Caller",
    "Counters",
    "CountersState",
    "DataPolicy",
    "Demand",
    "ExpiredKeyError",
    "Group",
    "KeyRecord",
    "LimitExceededError",
    "Limits",
    "MemoryCounters",
    "ModelNotAllowedError",
    "NewKey",
    "Parent",
    "Reading",
    "Records",
    "RedisCounters",
    "RefusedKeyError",
    "Reservation",
    "Secret",
    "Settled",
    "SqliteStore",
    "StoreBusyError",
    "StoreError",
    "StoresDownError",
    "Terms",
    "UnknownKeyError",
    "UnknownPriceError",
    "connect",
    "make_key",
    "secret_of",
]
