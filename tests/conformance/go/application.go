package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

// signedIn is a credential as the identity library has them; it notes what it is asked for.
type signedIn struct {
	token  string
	mutex  sync.Mutex
	scopes []string
}

func (s *signedIn) GetToken(_ context.Context, asked policy.TokenRequestOptions) (azcore.AccessToken, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, scope := range asked.Scopes {
		if !strings.Contains(strings.Join(s.scopes, " "), scope) {
			s.scopes = append(s.scopes, scope)
		}
	}
	return azcore.AccessToken{Token: s.token, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// signIn uses a bus with a credential; see test_sign_in.py.
func signIn(host, administrationHost, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	credential := &signedIn{token: token}
	// One attempt: a token that is refused stays refused.
	options := &admin.ClientOptions{}
	options.Retry.MaxRetries = -1
	administration := orEnd(admin.NewClient(administrationHost, credential, options))
	found := orEnd(administration.GetQueue(ctx, "orders", nil))
	client := orEnd(azservicebus.NewClient(host, credential, nil))
	bodies := overAMQP(ctx, client, found.QueueName, "from Go")
	fmt.Println(string(orEnd(json.Marshal(map[string]any{"body": bodies, "scopes": credential.scopes}))))
}

// application is written for the cloud: it knows a connection string and nothing of us. It uses
// the administration client, AMQP, and AMQP inside a WebSocket; see test_drop_in.py.
func application(queue string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	connecting := os.Getenv("SERVICEBUS_CONNECTION_STRING")
	administration := orEnd(admin.NewClientFromConnectionString(connecting, nil))
	if orEnd(administration.GetQueue(ctx, queue, nil)) == nil {
		orEnd(administration.CreateQueue(ctx, queue, nil))
	}
	over := &azservicebus.ClientOptions{NewWebSocketConn: dialWebSocket}
	fmt.Println(
		overAMQP(ctx, orEnd(azservicebus.NewClientFromConnectionString(connecting, nil)), queue, "one"),
		overAMQP(ctx, orEnd(azservicebus.NewClientFromConnectionString(connecting, over)), queue, "two"),
	)
}

// overAMQP sends a message, receives and completes it, and returns its body.
func overAMQP(ctx context.Context, client *azservicebus.Client, queue, body string) string {
	defer client.Close(ctx)
	sender := orEnd(client.NewSender(queue, nil))
	if err := sender.SendMessage(ctx, text(body), nil); err != nil {
		end(err)
	}
	receiver := orEnd(client.NewReceiverForQueue(queue, nil))
	found := orEnd(receiver.ReceiveMessages(ctx, 1, nil))[0]
	if err := receiver.CompleteMessage(ctx, found, nil); err != nil {
		end(err)
	}
	return string(found.Body)
}

func orEnd[T any](value T, err error) T {
	if err != nil {
		end(err)
	}
	return value
}

// end tells why the program ends, with the code of the service where there is one.
func end(err error) {
	var refused *azservicebus.Error
	if errors.As(err, &refused) {
		fmt.Fprintln(os.Stderr, refused.Code)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
