-- One row per account: what upstream said when it was last called.
CREATE TABLE `Accounts` (
  -- The account key, as Kafka has it.
  AccountId STRING(512) NOT NULL,
  -- The response body; NULL once the account is deleted.
  Payload STRING(MAX),
  -- SHA-256 of Payload, in hex.
  PayloadHash STRING(64),
  -- JSON: through which record of each partition the account is covered.
  Sources STRING(MAX),
  -- Start of the upstream call, in Temporal's clock. The newest call wins.
  CalledAt TIMESTAMP,
  -- Run and attempt of that call.
  SyncId STRING(64),
  Attempt INT64,
  -- The call that first found the account gone; NULL while it exists.
  DeletedAt TIMESTAMP,
  SyncedAt TIMESTAMP OPTIONS (allow_commit_timestamp = true),
  -- Version of the response, by UPSTREAM_VERSION; NULL where it has none.
  Version STRING(64),
) PRIMARY KEY (AccountId)
