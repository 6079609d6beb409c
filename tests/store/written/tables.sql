-- The tables of each version, as what it changed in those of the one before. A store of version 4 is 1 to 4.
-- 1
CREATE TABLE cdc_store (
    version INTEGER NOT NULL, PRIMARY KEY (version)
);
CREATE TABLE cdc_changefeeds (
    name VARCHAR(40) NOT NULL, feed_id VARCHAR(12) NOT NULL, epoch BIGINT NOT NULL, definition TEXT NOT NULL,
    created_at VARCHAR(32) NOT NULL, token TEXT, frontier TEXT, latest VARCHAR(40), counters TEXT,
    saved_at VARCHAR(32), PRIMARY KEY (name), UNIQUE (feed_id)
);
-- 2
ALTER TABLE cdc_changefeeds ADD COLUMN "plan" TEXT;
ALTER TABLE cdc_changefeeds ADD COLUMN paused TEXT;
ALTER TABLE cdc_changefeeds ADD COLUMN recorded TEXT;
ALTER TABLE cdc_changefeeds ADD COLUMN unrecorded TEXT;
CREATE TABLE cdc_delivered (
    id {number}, name VARCHAR(40) NOT NULL, entry TEXT NOT NULL, mark VARCHAR(40), PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_delivered_name ON cdc_delivered (name);
CREATE TABLE cdc_dead_letters (
    id {number}, name VARCHAR(40) NOT NULL, table_name TEXT NOT NULL, "key" TEXT NOT NULL,
    updated VARCHAR(40) NOT NULL, stage VARCHAR(16) NOT NULL, error TEXT NOT NULL, put_aside_at VARCHAR(32) NOT NULL,
    replayed_at VARCHAR(32), PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_dead_letters_waiting ON cdc_dead_letters (name, replayed_at);
-- 3
ALTER TABLE cdc_changefeeds ADD COLUMN emitted TEXT;
-- 4
CREATE TABLE cdc_gaps (
    name VARCHAR(40) NOT NULL, mark VARCHAR(40) NOT NULL, PRIMARY KEY (name, mark)
);
ALTER TABLE cdc_changefeeds DROP COLUMN unrecorded;
CREATE TABLE cdc_status (
    name VARCHAR(40) NOT NULL, status TEXT NOT NULL, written_at VARCHAR(32) NOT NULL, PRIMARY KEY (name)
);
DROP INDEX IF EXISTS ix_cdc_dead_letters_name;
CREATE INDEX IF NOT EXISTS ix_cdc_dead_letters_waiting ON cdc_dead_letters (name, replayed_at);
-- 5
ALTER TABLE cdc_changefeeds ADD COLUMN initial_scans TEXT;
CREATE TABLE cdc_rescans (
    id {number}, name VARCHAR(40) NOT NULL, table_name TEXT, predicate TEXT, new_slot BOOLEAN NOT NULL,
    asked_at VARCHAR(32) NOT NULL, began VARCHAR(40), PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_rescans_name ON cdc_rescans (name);
-- 6
CREATE TABLE cdc_jobs (
    name VARCHAR(40) NOT NULL, state VARCHAR(20) NOT NULL, reason TEXT, owner VARCHAR(64) NOT NULL,
    locality TEXT NOT NULL, ends_as VARCHAR(20), node_id VARCHAR(16), clean BOOLEAN NOT NULL, offered_to VARCHAR(16),
    offered_until {double}, waiting_since {double}, schedule VARCHAR(40),
    created {double} NOT NULL, started {double}, finished {double}, PRIMARY KEY (name)
);
CREATE TABLE cdc_job_events (
    id {number}, name VARCHAR(40) NOT NULL, at {double} NOT NULL, state VARCHAR(20) NOT NULL, reason TEXT,
    node VARCHAR(80), PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_job_events_name ON cdc_job_events (name);
CREATE TABLE cdc_nodes (
    node_id VARCHAR(16) NOT NULL, name VARCHAR(80) NOT NULL, locality TEXT NOT NULL, host VARCHAR(255) NOT NULL,
    pid INTEGER NOT NULL, directory TEXT NOT NULL, version VARCHAR(40) NOT NULL, max_jobs INTEGER NOT NULL,
    started {double} NOT NULL, expires {double} NOT NULL, draining BOOLEAN NOT NULL,
    problems TEXT NOT NULL, owners TEXT NOT NULL, PRIMARY KEY (node_id), UNIQUE (name)
);
CREATE TABLE cdc_schedules (
    name VARCHAR(25) NOT NULL, definition TEXT NOT NULL, locality TEXT NOT NULL, owner VARCHAR(64) NOT NULL,
    cron TEXT NOT NULL, time_zone VARCHAR(64) NOT NULL, on_previous_running VARCHAR(10) NOT NULL,
    on_execution_failure VARCHAR(10) NOT NULL, created {double} NOT NULL, next_run {double},
    reason TEXT, last_job VARCHAR(40), version BIGINT NOT NULL, PRIMARY KEY (name)
);
CREATE TABLE cdc_schedule_runs (
    job VARCHAR(40) NOT NULL, schedule VARCHAR(25) NOT NULL, PRIMARY KEY (job)
);
CREATE INDEX ix_cdc_schedule_runs_schedule ON cdc_schedule_runs (schedule);
-- 7
CREATE TABLE cdc_claims (
    name VARCHAR(40) NOT NULL, epoch BIGINT NOT NULL, step BIGINT NOT NULL, slice INTEGER NOT NULL,
    task INTEGER NOT NULL, PRIMARY KEY (name, epoch, step, slice),
    CONSTRAINT uq_cdc_claims_task UNIQUE (name, epoch, step, task)
);
-- 8
CREATE TABLE cdc_topics (
    id {number}, name VARCHAR(40) NOT NULL, topic TEXT NOT NULL, PRIMARY KEY (id)
);
CREATE INDEX ix_cdc_topics_name ON cdc_topics (name);
-- 9
ALTER TABLE cdc_jobs ADD COLUMN paused_for VARCHAR(10);
ALTER TABLE cdc_jobs ADD COLUMN pending TEXT;
-- 10
CREATE TABLE cdc_events (
    id {number} PRIMARY KEY, at VARCHAR(32) NOT NULL, kind VARCHAR(40) NOT NULL, name VARCHAR(40), node VARCHAR(80),
    message TEXT, details TEXT NOT NULL, times INTEGER NOT NULL, last_at VARCHAR(32) NOT NULL
);
CREATE INDEX ix_cdc_events_name ON cdc_events (name, id);
-- 11
CREATE TABLE cdc_traces (
    id {number} PRIMARY KEY, name VARCHAR(40) NOT NULL, table_name TEXT, "key" TEXT, most INTEGER NOT NULL,
    expires {double} NOT NULL, found TEXT NOT NULL
);
CREATE INDEX ix_cdc_traces_name ON cdc_traces (name);
-- 12
ALTER TABLE cdc_jobs DROP COLUMN ends_as;
ALTER TABLE cdc_jobs DROP COLUMN waiting_since;
-- 13
ALTER TABLE cdc_changefeeds ADD COLUMN places TEXT;
-- 14
CREATE TABLE cdc_moments (
    name VARCHAR(40) NOT NULL, minute INTEGER NOT NULL, counted TEXT NOT NULL, PRIMARY KEY (name, minute)
);
-- 15
ALTER TABLE cdc_nodes RENAME COLUMN draining TO is_draining;
ALTER TABLE cdc_jobs RENAME COLUMN clean TO is_clean;
ALTER TABLE cdc_nodes ADD COLUMN cores INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE cdc_nodes ADD COLUMN master VARCHAR(280) DEFAULT '' NOT NULL;
ALTER TABLE cdc_nodes ADD COLUMN cores_used INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE cdc_jobs ADD COLUMN is_run BOOLEAN DEFAULT false NOT NULL;
ALTER TABLE cdc_jobs ADD COLUMN slot INTEGER;
CREATE TABLE cdc_cluster (
    id INTEGER NOT NULL, node_id VARCHAR(16) NOT NULL, epoch INTEGER NOT NULL, files TEXT NOT NULL, PRIMARY KEY (id)
);
ALTER TABLE cdc_changefeeds DROP COLUMN paused;
