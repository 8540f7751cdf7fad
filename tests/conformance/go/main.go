// The Go SDK, unmodified, against a bus: one line of JSON for each feature on standard output.
//
//	conformance features [NAME...]   all features, or those that are named
//	conformance load NAME QUEUE      sends and completes until standard input ends
//	conformance sign-in HOST ADMINISTRATION TOKEN
//	conformance application QUEUE    as it would be written for the cloud
//
// The bus is named by variables; tests/conformance/test_sdks.py sets them.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// How many features are tried at a time, how long one may take, and how long to wait for what must
// not come.
const (
	atATime = 6
	limit   = 90 * time.Second
	nothing = 500 * time.Millisecond
)

var (
	connectionString = os.Getenv("SHARDBUS_CONNECTION_STRING")
	tlsString        = os.Getenv("SHARDBUS_TLS_CONNECTION_STRING")
	premiumString    = os.Getenv("SHARDBUS_PREMIUM_CONNECTION_STRING")
	prefix           = os.Getenv("SHARDBUS_PREFIX")
)

type result struct {
	Feature string `json:"feature"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
}

type feature struct {
	name string
	run  func(*world) string
}

// failure is what a scenario panics with; everything else that panics is a bug of the program.
type failure struct{ text string }

func main() {
	if len(os.Args) > 3 && os.Args[1] == "load" {
		tell(attempt(feature{os.Args[2], func(w *world) string { return w.load(os.Args[3]) }}, time.Hour))
		return
	}
	if len(os.Args) > 4 && os.Args[1] == "sign-in" {
		signIn(os.Args[2], os.Args[3], os.Args[4])
		return
	}
	if len(os.Args) > 2 && os.Args[1] == "application" {
		application(os.Args[2])
		return
	}
	wanted, results := os.Args[2:], make(chan result)
	var running sync.WaitGroup
	turns := make(chan struct{}, atATime)
	for _, each := range features() {
		if len(wanted) == 0 || slices.Contains(wanted, each.name) {
			running.Go(func() {
				turns <- struct{}{}
				results <- attempt(each, limit)
				<-turns
			})
		}
	}
	go func() { running.Wait(); close(results) }()
	for told := range results {
		tell(told)
	}
}

func tell(told result) {
	line, err := json.Marshal(told)
	check(err)
	fmt.Println(string(line))
}

func attempt(each feature, longest time.Duration) (told result) {
	if each.run == nil {
		return result{each.name, "not offered", "the SDK has no such call"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	w := &world{ctx: ctx, name: each.name}
	defer func() {
		w.end()
		if broken := recover(); broken != nil {
			known, isFailure := broken.(failure)
			if !isFailure {
				panic(broken)
			}
			told = result{each.name, "failed", known.text}
		}
	}()
	return result{each.name, "passed", each.run(w)}
}

func check(err error) {
	if err != nil {
		panic(failure{err.Error()})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func same[T comparable](what string, found, wanted T) {
	if found != wanted {
		panic(failure{fmt.Sprintf("%s: %v instead of %v", what, found, wanted)})
	}
}

// world holds the clients of one feature and closes them at its end.
type world struct {
	ctx     context.Context
	name    string
	count   int
	clients []*azservicebus.Client
}

func (w *world) end() {
	closing, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, client := range w.clients {
		_ = client.Close(closing)
	}
}

func (w *world) client(text string, options *azservicebus.ClientOptions) *azservicebus.Client {
	client := must(azservicebus.NewClientFromConnectionString(text, options))
	w.clients = append(w.clients, client)
	return client
}

func administration() *admin.Client {
	return must(admin.NewClientFromConnectionString(connectionString, nil))
}

func (w *world) newName() string {
	w.count++
	return fmt.Sprintf("%s-%s-%d", prefix, w.name, w.count)
}

// queue creates one with locks of ten seconds and three deliveries, unless told otherwise.
func (w *world) queue(isPartitioned bool, more func(*admin.QueueProperties)) string {
	properties := &admin.QueueProperties{
		EnablePartitioning: ptr(isPartitioned),
		LockDuration:       ptr("PT10S"),
		MaxDeliveryCount:   ptr(int32(3)),
	}
	if more != nil {
		more(properties)
	}
	name := w.newName()
	must(administration().CreateQueue(w.ctx, name, &admin.CreateQueueOptions{Properties: properties}))
	return name
}

func withSessions(properties *admin.QueueProperties) { properties.RequiresSession = ptr(true) }

func ptr[T any](value T) *T { return &value }
