-- The sync log: one row per upstream call that was answered, and one per discard.
CREATE TABLE `AccountSyncs` (
  AccountId STRING(512) NOT NULL,
  SyncedAt TIMESTAMP NOT NULL OPTIONS (allow_commit_timestamp = true),
  SyncId STRING(64) NOT NULL,
  -- How many changes the call covers, and which (JSON, an array of ranges).
  Changes INT64,
  Sources STRING(MAX),
  OldestChangeAt TIMESTAMP,
  NewestChangeAt TIMESTAMP,
  CalledAt TIMESTAMP,
  UpstreamStatus INT64,
  UpstreamMillis INT64,
  Attempt INT64,
  -- written, unchanged, deleted; fenced or unsettled: the answer was not kept;
  -- discarded: no call.
  Outcome STRING(16),
  PayloadHash STRING(64),
  -- The replay that asked for the call; NULL for live ones.
  ReplayId STRING(64),
  -- How many attempts it took, this one included; those before it failed.
  Tries INT64,
  -- Who gave the changes up, and why; NULL unless they were discarded.
  Operator STRING(256),
  Reason STRING(MAX),
  -- Version of the response, by UPSTREAM_VERSION; NULL where it has none.
  Version STRING(64),
) PRIMARY KEY (AccountId, SyncedAt DESC, SyncId),
  ROW DELETION POLICY (OLDER_THAN(SyncedAt, INTERVAL 90 DAY))
