package simchain

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Gateway returns a configuration of the gateway, for its file, whose relayer uses the chain and keeps its requests in a SQLite file. Everything
// listens on the loopback interface, at the usual ports. No DON is needed: the one node in it is nobody's. Who needs it otherwise changes the maps.
func (c Config) Gateway(database string, signer map[string]any) map[string]any {
	type object = map[string]any
	type list = []any
	node := object{"address": "0x0000000000000000000000000000000000000001"}
	return object{
		"userServerConfig":        object{"host": "127.0.0.1"},
		"nodeServerConfig":        object{"host": "127.0.0.1"},
		"admin":                   object{},
		"connectionManagerConfig": object{"authGatewayId": "gateway-1"},
		"services":                list{object{"serviceName": "workflows", "dons": list{"don"}, "handlers": list{object{"name": "http-capabilities"}}}},
		"shardedDONs":             list{object{"donName": "don", "f": 0, "shards": list{object{"nodes": list{node}}}}},
		"storage":                 object{"driver": "sqlite", "dsn": database},
		"relayer": object{
			"enabled": true,
			"chain": object{
				"rpcURLs": list{c.HTTP}, "chainId": c.ChainID, "startBlock": max(c.StartBlock, 1),
				"listeners": list{object{"type": "subscription", "url": c.WS}},
			},
			"contracts": object{
				"decryption": c.Decryption.Hex(), "inputVerification": c.InputVerification.Hex(), "protocolConfig": c.ProtocolConfig.Hex(),
				"kmsGeneration": c.KMSGeneration.Hex(), "feeToken": c.FeeToken.Hex(), "feeSpender": c.FeeSpender.Hex(),
			},
			"hostChains": list{object{"chainId": c.ChainID, "rpcURL": c.HTTP, "acl": c.ACL.Hex()}},
			"signer":     signer,
			"threshold":  c.Threshold,
		},
	}
}

// WriteGateway makes a folder with what a gateway needs to use the chain: gateway.json and, for it, relayer-key, the first account's. The database
// will be there too. A folder that exists is refused: a chain that begins anew needs a database that does, too.
func (c Config) WriteGateway(folder string) (err error) {
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("simchain: a folder for the gateway: %w", err)
	}
	key := filepath.Join(folder, "relayer-key")
	text, err := json.MarshalIndent(c.Gateway(filepath.Join(folder, "relayer.db"), map[string]any{"keyFile": key}), "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(key, []byte(c.Accounts[0].Key+"\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "gateway.json"), append(text, '\n'), 0o600)
}
