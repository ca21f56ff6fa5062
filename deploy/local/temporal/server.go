package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/testing/freeport"
	schema "go.temporal.io/server/schema/sqlite"
	"go.temporal.io/server/temporal"
)

const (
	clusterName = "active"
	loopback    = "127.0.0.1"
)

// newServer returns all four services of a Temporal server in this process. It
// creates the schema of a new database file, and the namespace.
func newServer(opts options) (temporal.Server, error) {
	store := sqlStore(opts.database)
	if opts.database != "" {
		if _, err := os.Stat(opts.database); errors.Is(err, os.ErrNotExist) {
			if err := schema.SetupSchema(store); err != nil {
				return nil, fmt.Errorf("create schema in %s: %w", opts.database, err)
			}
		}
	}
	namespace, err := schema.NewNamespaceConfig(clusterName, opts.namespace, false, nil)
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", opts.namespace, err)
	}
	if err := schema.CreateNamespaces(store, namespace); err != nil {
		return nil, fmt.Errorf("create namespace %s: %w", opts.namespace, err)
	}
	logger := log.NewZapLogger(log.BuildZapLogger(log.Config{Level: opts.logLevel}))
	claims := authorization.NewNoopClaimMapper()
	s, err := temporal.NewServer(
		temporal.WithConfig(serverConfig(opts, store)),
		temporal.ForServices(temporal.DefaultServices),
		temporal.WithLogger(logger),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper { return claims }),
		temporal.WithDynamicConfigClient(opts.dynamic),
	)
	if err != nil {
		return nil, fmt.Errorf("configure server: %w", err)
	}
	return s, nil
}

// sqlStore describes the database file, or one in memory that lives as long as
// this process.
func sqlStore(file string) *config.SQL {
	store := &config.SQL{
		PluginName:        sqlite.PluginName,
		DatabaseName:      file,
		ConnectAttributes: map[string]string{"mode": "rwc"},
	}
	if file == "" {
		store.DatabaseName = fmt.Sprintf("quiesce-%d", rand.Uint64())
		store.ConnectAttributes = map[string]string{"mode": "memory", "cache": "shared"}
	}
	return store
}

// serverConfig is the least that a server of one process needs. Dynamic
// settings keep their defaults: in particular no search-attribute cache refresh
// on every read, which would add reads that production does not make.
func serverConfig(opts options, store *config.SQL) *config.Config {
	frontend := opts.frontend.String()
	internal := func() config.Service {
		return config.Service{RPC: config.RPC{
			GRPCPort:        freeport.MustGetFreePort(),
			MembershipPort:  freeport.MustGetFreePort(),
			BindOnLocalHost: true,
		}}
	}
	cfg := &config.Config{
		Global: config.Global{
			Membership: config.Membership{MaxJoinDuration: 30 * time.Second, BroadcastAddress: loopback},
		},
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: store}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		PublicClient:        config.PublicClient{HostPort: frontend},
		Services: map[string]config.Service{
			"frontend": {RPC: config.RPC{
				GRPCPort:       int(opts.frontend.Port()),
				MembershipPort: freeport.MustGetFreePort(),
				BindOnIP:       opts.frontend.Addr().String(),
			}},
			"history":  internal(),
			"matching": internal(),
			"worker":   internal(),
		},
	}
	cfg.Archival.History.State, cfg.Archival.Visibility.State = "disabled", "disabled"
	cfg.NamespaceDefaults.Archival.History.State = "disabled"
	cfg.NamespaceDefaults.Archival.Visibility.State = "disabled"
	return cfg
}

// newUI returns the web UI as a client of the frontend. Its request log would
// go to stdout, which belongs to the ready line.
func newUI(opts options) *server.Server {
	return server.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		TemporalGRPCAddress: opts.frontend.String(),
		Host:                opts.ui.Addr().String(),
		Port:                int(opts.ui.Port()),
		EnableUI:            true,
		DefaultNamespace:    opts.namespace,
		DisableNewsFetch:    true,
		HideLogs:            true,
		CORS:                uiconfig.CORS{CookieInsecure: true},
	}))
}

// awaitListener returns once address accepts connections.
func awaitListener(ctx context.Context, address string) error {
	return poll(ctx, "web UI on "+address, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
