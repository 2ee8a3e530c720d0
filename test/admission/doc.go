// Package admission holds what users write against a real API server: definitions, webhook and admission policies, as the manifest
// in deploy installs them.
package admission
