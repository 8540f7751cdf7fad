package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/coder/websocket"
)

func features() []feature {
	return []feature{
		{"administration", administrationOfAll},
		{"send", onBoth(sendOne)},
		{"batch", onBoth(sendBatch)},
		{"keyed", keyed},
		{"schedule", onBoth(schedule)},
		{"receive", onBoth(receiveInBothModes)},
		{"settle", onBoth(settle)},
		{"deferred", onBoth(deferred)},
		{"dead-letters", onBoth(deadLetters)},
		{"session-accept", onBoth(sessionAccept)},
		{"session-next", onBoth(sessionNext)},
		{"session-state", onBoth(sessionState)},
		{"session-renew", sessionRenew},
		{"session-list", onBoth(sessionList)},
		{"peek", onBoth(peek)},
		{"renew", onBoth(renew)},
		{"auto-renew", nil},
		{"prefetch", nil},
		{"async", nil},
		{"push", nil},
		{"session-push", nil},
		{"rules", rules},
		{"rule-manager", nil},
		{"transaction", nil},
		{"transaction-across", nil},
		{"duplicates", onBoth(duplicates)},
		{"large", large},
		{"websocket", overWebSocket},
		{"tls", overTLS},
	}
}

// onBoth runs a scenario on a conventional and on a partitioned entity.
func onBoth(scenario func(*world, bool)) func(*world) string {
	return func(w *world) string {
		for _, isPartitioned := range []bool{false, true} {
			scenario(w, isPartitioned)
		}
		return "conventional and partitioned"
	}
}

type ends struct {
	client   *azservicebus.Client
	sender   *azservicebus.Sender
	receiver *azservicebus.Receiver
}

func (w *world) open(queue string) ends {
	client := w.client(connectionString, nil)
	return ends{
		client,
		must(client.NewSender(queue, nil)),
		must(client.NewReceiverForQueue(queue, nil)),
	}
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

func (w *world) send(sender *azservicebus.Sender, bodies ...string) {
	for _, body := range bodies {
		check(sender.SendMessage(w.ctx, text(body), nil))
	}
}

type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// receive waits until so many messages have come.
func (w *world) receive(receiver receiving, wanted int) []*azservicebus.ReceivedMessage {
	var found []*azservicebus.ReceivedMessage
	for len(found) < wanted {
		found = append(found, must(receiver.ReceiveMessages(w.ctx, wanted-len(found), nil))...)
	}
	return found
}

func (w *world) one(receiver receiving) *azservicebus.ReceivedMessage {
	return w.receive(receiver, 1)[0]
}

func (w *world) none(receiver receiving) {
	ctx, cancel := context.WithTimeout(w.ctx, nothing)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		panic(failure{fmt.Sprintf("%d messages and %v instead of none", len(found), err)})
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) string {
	var found []string
	for _, message := range messages {
		found = append(found, string(message.Body))
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

func administrationOfAll(w *world) string {
	manager := administration()
	for _, isPartitioned := range []bool{false, true} {
		queue := w.queue(isPartitioned, nil)
		found := must(manager.GetQueue(w.ctx, queue, nil))
		same("EnablePartitioning", *found.EnablePartitioning, isPartitioned)
		same("LockDuration", *found.LockDuration, "PT10S")
		found.QueueProperties.LockDuration = ptr("PT20S")
		changed := must(manager.UpdateQueue(w.ctx, queue, found.QueueProperties, nil))
		same("LockDuration after the change", *changed.LockDuration, "PT20S")
		runtime := must(manager.GetQueueRuntimeProperties(w.ctx, queue, nil))
		same("messages", runtime.TotalMessageCount, 0)

		topic := w.newName()
		must(manager.CreateTopic(w.ctx, topic, &admin.CreateTopicOptions{
			Properties: &admin.TopicProperties{EnablePartitioning: ptr(isPartitioned)},
		}))
		must(manager.CreateSubscription(w.ctx, topic, "all", nil))
		of := must(manager.GetTopicRuntimeProperties(w.ctx, topic, nil))
		same("subscriptions", of.SubscriptionCount, 1)
		same("filters", of.SQLFilterCount+of.CorrelationFilterCount, 1)

		names := 0
		for pager := manager.NewListQueuesPager(&admin.ListQueuesOptions{MaxPageSize: 2}); pager.More(); {
			for _, each := range must(pager.NextPage(w.ctx)).Queues {
				if each.QueueName == queue {
					names++
				}
			}
		}
		same("times listed", names, 1)
		must(manager.DeleteQueue(w.ctx, queue, nil))
		if gone := must(manager.GetQueue(w.ctx, queue, nil)); gone != nil {
			panic(failure{"a deleted queue is still there"})
		}
	}
	space := must(manager.GetNamespaceProperties(w.ctx, nil))
	same("tier", space.SKU, "Standard")
	return "queues, topics and subscriptions: create, get, update, list by pages, delete"
}

func sendOne(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, nil))
	check(at.sender.SendMessage(w.ctx, &azservicebus.Message{
		Body:                  []byte("hello"),
		MessageID:             ptr("m1"),
		Subject:               ptr("greeting"),
		ContentType:           ptr("text/plain"),
		CorrelationID:         ptr("c1"),
		TimeToLive:            ptr(time.Hour),
		ApplicationProperties: map[string]any{"long": int64(7), "text": "x", "true": true, "real": 1.5},
	}, nil))
	got := w.one(at.receiver)
	same("body", string(got.Body), "hello")
	same("id", got.MessageID, "m1")
	same("subject", *got.Subject, "greeting")
	same("long", got.ApplicationProperties["long"], any(int64(7)))
	same("real", got.ApplicationProperties["real"], any(1.5))
	same("TTL", *got.TimeToLive, time.Hour)
	check(at.receiver.CompleteMessage(w.ctx, got, nil))
	w.none(at.receiver)
}

func sendBatch(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, nil))
	batch := must(at.sender.NewMessageBatch(w.ctx, nil))
	filled := 0
	for {
		err := batch.AddMessage(&azservicebus.Message{Body: bytes.Repeat([]byte("b"), 2000)}, nil)
		if errors.Is(err, azservicebus.ErrMessageTooLarge) {
			break
		}
		check(err)
		filled++
	}
	check(at.sender.SendMessageBatch(w.ctx, batch, nil))
	for _, message := range w.receive(at.receiver, filled) {
		check(at.receiver.CompleteMessage(w.ctx, message, nil))
	}
	w.none(at.receiver)
}

func keyed(w *world) string {
	at := w.open(w.queue(true, nil))
	for number := range 12 {
		check(at.sender.SendMessage(w.ctx, &azservicebus.Message{
			Body: fmt.Appendf(nil, "%02d", number), PartitionKey: ptr(fmt.Sprintf("key-%d", number%3)),
		}, nil))
	}
	fragments, last := map[string]int64{}, map[string]string{}
	for _, message := range w.receive(at.receiver, 12) {
		key, fragment := *message.PartitionKey, *message.SequenceNumber>>48
		if before, known := fragments[key]; known {
			same("fragment of "+key, fragment, before)
		}
		if string(message.Body) < last[key] {
			panic(failure{"messages of one key out of order"})
		}
		fragments[key], last[key] = fragment, string(message.Body)
		check(at.receiver.CompleteMessage(w.ctx, message, nil))
	}
	return "one fragment and one order for each key"
}

func schedule(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, nil))
	soon, later := time.Now().Add(1500*time.Millisecond), time.Now().Add(time.Hour)
	must(at.sender.ScheduleMessages(w.ctx, []*azservicebus.Message{text("soon")}, soon, nil))
	cancelled := must(at.sender.ScheduleMessages(w.ctx, []*azservicebus.Message{text("a"), text("b")}, later, nil))
	check(at.sender.CancelScheduledMessages(w.ctx, cancelled, nil))
	got := w.one(at.receiver)
	same("body", string(got.Body), "soon")
	if time.Now().Before(soon.Add(-50 * time.Millisecond)) {
		panic(failure{"a scheduled message came too early"})
	}
	check(at.receiver.CompleteMessage(w.ctx, got, nil))
	same("left", len(must(at.receiver.PeekMessages(w.ctx, 10, nil))), 0)
}

func receiveInBothModes(w *world, isPartitioned bool) {
	queue := w.queue(isPartitioned, nil)
	at := w.open(queue)
	w.send(at.sender, "1", "2", "3", "4")
	deleting := must(at.client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{
		ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
	}))
	found := w.receive(deleting, 4)
	same("bodies", bodies(found), "1 2 3 4")
	check(deleting.Close(w.ctx))
	w.send(at.sender, "5")
	locked := w.one(at.receiver)
	w.none(must(at.client.NewReceiverForQueue(queue, nil)))
	check(at.receiver.CompleteMessage(w.ctx, locked, nil))
	same("left", len(must(at.receiver.PeekMessages(w.ctx, 10, nil))), 0)
}

func settle(w *world, isPartitioned bool) {
	queue := w.queue(isPartitioned, nil)
	at := w.open(queue)
	w.send(at.sender, "complete")
	check(at.receiver.CompleteMessage(w.ctx, w.one(at.receiver), nil))
	w.send(at.sender, "abandon")
	check(at.receiver.AbandonMessage(w.ctx, w.one(at.receiver), &azservicebus.AbandonMessageOptions{
		PropertiesToModify: map[string]any{"tried": "once"},
	}))
	again := w.one(at.receiver)
	same("deliveries", again.DeliveryCount, uint32(2))
	same("changed property", again.ApplicationProperties["tried"], any("once"))
	check(at.receiver.CompleteMessage(w.ctx, again, nil))
	w.send(at.sender, "defer")
	check(at.receiver.DeferMessage(w.ctx, w.one(at.receiver), nil))
	w.send(at.sender, "dead-letter")
	check(at.receiver.DeadLetterMessage(w.ctx, w.one(at.receiver), nil))
	runtime := must(administration().GetQueueRuntimeProperties(w.ctx, queue, nil))
	same("active (deferred ones count)", runtime.ActiveMessageCount, 1)
	same("dead letters", runtime.DeadLetterMessageCount, 1)
}

func deferred(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, nil))
	w.send(at.sender, "later")
	got := w.one(at.receiver)
	check(at.receiver.DeferMessage(w.ctx, got, nil))
	w.none(at.receiver)
	peeked := must(at.receiver.PeekMessages(w.ctx, 1, nil))
	same("state", peeked[0].State, azservicebus.MessageStateDeferred)
	found := must(at.receiver.ReceiveDeferredMessages(w.ctx, []int64{*got.SequenceNumber}, nil))
	same("body", string(found[0].Body), "later")
	check(at.receiver.CompleteMessage(w.ctx, found[0], nil))
	_, err := at.receiver.ReceiveDeferredMessages(w.ctx, []int64{*got.SequenceNumber}, nil)
	if err == nil {
		panic(failure{"a deferred message came twice"})
	}
}

func deadLetters(w *world, isPartitioned bool) {
	queue := w.queue(isPartitioned, nil)
	at := w.open(queue)
	w.send(at.sender, "bad")
	check(at.receiver.DeadLetterMessage(w.ctx, w.one(at.receiver), &azservicebus.DeadLetterOptions{
		Reason: ptr("reason"), ErrorDescription: ptr("description"),
	}))
	w.send(at.sender, "often")
	for range 3 {
		check(at.receiver.AbandonMessage(w.ctx, w.one(at.receiver), nil))
	}
	dead := must(at.client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{
		SubQueue: azservicebus.SubQueueDeadLetter,
	}))
	reasons := map[string]string{}
	for _, message := range w.receive(dead, 2) {
		reasons[string(message.Body)] = *message.DeadLetterReason
		check(dead.CompleteMessage(w.ctx, message, nil))
	}
	same("reason", reasons["bad"], "reason")
	same("reason of the bus", reasons["often"], "MaxDeliveryCountExceeded")
	w.none(at.receiver)
}

func (w *world) sessionQueue(isPartitioned bool, ids ...string) (string, *azservicebus.Client) {
	queue := w.queue(isPartitioned, withSessions)
	client := w.client(connectionString, nil)
	sender := must(client.NewSender(queue, nil))
	for _, id := range ids {
		check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte(id), SessionID: ptr(id)}, nil))
	}
	return queue, client
}

func sessionAccept(w *world, isPartitioned bool) {
	queue, client := w.sessionQueue(isPartitioned, "a", "b", "a")
	session := must(client.AcceptSessionForQueue(w.ctx, queue, "a", nil))
	same("id", session.SessionID(), "a")
	for _, message := range w.receive(session, 2) {
		same("session", *message.SessionID, "a")
		check(session.CompleteMessage(w.ctx, message, nil))
	}
	w.none(session)
	_, err := client.AcceptSessionForQueue(w.ctx, queue, "a", nil)
	if err == nil {
		panic(failure{"a locked session was accepted twice"})
	}
	check(session.Close(w.ctx))
	check(must(client.AcceptSessionForQueue(w.ctx, queue, "a", nil)).Close(w.ctx))
}

func sessionNext(w *world, isPartitioned bool) {
	queue, client := w.sessionQueue(isPartitioned, "a", "b")
	seen := map[string]bool{}
	for range 2 {
		session := must(client.AcceptNextSessionForQueue(w.ctx, queue, nil))
		seen[session.SessionID()] = true
		check(session.CompleteMessage(w.ctx, w.one(session), nil))
		check(session.Close(w.ctx))
	}
	same("sessions", len(seen), 2)
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
	defer cancel()
	if _, err := client.AcceptNextSessionForQueue(ctx, queue, nil); err == nil {
		panic(failure{"there was a third session"})
	}
}

func sessionState(w *world, isPartitioned bool) {
	queue, client := w.sessionQueue(isPartitioned, "a")
	session := must(client.AcceptSessionForQueue(w.ctx, queue, "a", nil))
	same("first state", len(must(session.GetSessionState(w.ctx, nil))), 0)
	check(session.SetSessionState(w.ctx, []byte("half way"), nil))
	check(session.Close(w.ctx))
	session = must(client.AcceptSessionForQueue(w.ctx, queue, "a", nil))
	same("state", string(must(session.GetSessionState(w.ctx, nil))), "half way")
	check(session.SetSessionState(w.ctx, nil, nil))
	same("cleared state", len(must(session.GetSessionState(w.ctx, nil))), 0)
}

func sessionRenew(w *world) string {
	queue := w.queue(false, func(p *admin.QueueProperties) { withSessions(p); p.LockDuration = ptr("PT5S") })
	session := must(w.client(connectionString, nil).AcceptSessionForQueue(w.ctx, queue, "a", nil))
	for range 3 {
		before := session.LockedUntil()
		time.Sleep(2 * time.Second)
		check(session.RenewSessionLock(w.ctx, nil))
		if !session.LockedUntil().After(before) {
			panic(failure{"the lock did not get longer"})
		}
	}
	check(session.SetSessionState(w.ctx, []byte("kept"), nil))
	return "a lock of 5 s held for 6 s"
}

func sessionList(w *world, isPartitioned bool) {
	var ids []string
	for number := range 104 {
		ids = append(ids, fmt.Sprintf("s%03d", number))
	}
	queue, client := w.sessionQueue(isPartitioned, ids...)
	session := must(client.AcceptSessionForQueue(w.ctx, queue, "with-state", nil))
	check(session.SetSessionState(w.ctx, []byte("x"), nil))
	var found []string
	for pager := client.NewListSessionsForQueuePager(queue, nil); pager.More(); {
		found = append(found, must(pager.NextPage(w.ctx)).Sessions...)
	}
	same("sessions", len(found), 105)
	found = nil
	since := &azservicebus.ListSessionsOptions{SessionStateUpdatedAfter: ptr(time.Now().Add(-time.Minute))}
	for pager := client.NewListSessionsForQueuePager(queue, since); pager.More(); {
		found = append(found, must(pager.NextPage(w.ctx)).Sessions...)
	}
	same("sessions with a new state", strings.Join(found, " "), "with-state")
}

func peek(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, nil))
	batch := must(at.sender.NewMessageBatch(w.ctx, nil))
	for number := range 300 {
		check(batch.AddMessage(text(fmt.Sprintf("%03d", number)), nil))
	}
	check(at.sender.SendMessageBatch(w.ctx, batch, nil))
	seen := map[int64]bool{}
	for {
		page := must(at.receiver.PeekMessages(w.ctx, 100, nil))
		if len(page) == 0 {
			break
		}
		for _, message := range page {
			seen[*message.SequenceNumber] = true
		}
	}
	same("messages over all pages", len(seen), 300)
	first := w.one(at.receiver)
	from := must(at.receiver.PeekMessages(w.ctx, 1, &azservicebus.PeekMessagesOptions{FromSequenceNumber: first.SequenceNumber}))
	same("from a number", *from[0].SequenceNumber, *first.SequenceNumber)
}

func renew(w *world, isPartitioned bool) {
	queue := w.queue(isPartitioned, func(p *admin.QueueProperties) { p.LockDuration = ptr("PT5S") })
	at := w.open(queue)
	w.send(at.sender, "slow")
	got := w.one(at.receiver)
	for range 2 {
		time.Sleep(3 * time.Second)
		before := *got.LockedUntil
		check(at.receiver.RenewMessageLock(w.ctx, got, nil))
		if !got.LockedUntil.After(before) {
			panic(failure{"the lock did not get longer"})
		}
	}
	check(at.receiver.CompleteMessage(w.ctx, got, nil))
}

func rules(w *world) string {
	manager := administration()
	for _, isPartitioned := range []bool{false, true} {
		topic := w.newName()
		must(manager.CreateTopic(w.ctx, topic, &admin.CreateTopicOptions{
			Properties: &admin.TopicProperties{EnablePartitioning: ptr(isPartitioned)},
		}))
		must(manager.CreateSubscription(w.ctx, topic, "some", nil))
		must(manager.DeleteRule(w.ctx, topic, "some", "$Default", nil))
		must(manager.CreateRule(w.ctx, topic, "some", &admin.CreateRuleOptions{
			Name:   ptr("sql"),
			Filter: &admin.SQLFilter{Expression: "amount > @least", Parameters: map[string]any{"@least": int64(10)}},
			Action: &admin.SQLAction{Expression: "SET seen = 'yes'"},
		}))
		must(manager.CreateRule(w.ctx, topic, "some", &admin.CreateRuleOptions{
			Name:   ptr("correlation"),
			Filter: &admin.CorrelationFilter{Subject: ptr("red"), ApplicationProperties: map[string]any{"size": "L"}},
		}))
		var names []string
		for pager := manager.NewListRulesPager(topic, "some", nil); pager.More(); {
			for _, rule := range must(pager.NextPage(w.ctx)).Rules {
				names = append(names, rule.Name)
			}
		}
		slices.Sort(names)
		same("rules", strings.Join(names, " "), "correlation sql")
		sql := must(manager.GetRule(w.ctx, topic, "some", "sql", nil))
		same("parameter", sql.Filter.(*admin.SQLFilter).Parameters["@least"], any(int64(10)))
		sql.RuleProperties.Filter = &admin.SQLFilter{Expression: "amount > 20"}
		must(manager.UpdateRule(w.ctx, topic, "some", sql.RuleProperties))

		client := w.client(connectionString, nil)
		sender := must(client.NewSender(topic, nil))
		receiver := must(client.NewReceiverForSubscription(topic, "some", nil))
		check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte("much"), ApplicationProperties: map[string]any{"amount": int64(25)}}, nil))
		check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte("little"), ApplicationProperties: map[string]any{"amount": int64(15)}}, nil))
		check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte("red"), Subject: ptr("red"), ApplicationProperties: map[string]any{"size": "L"}}, nil))
		found := w.receive(receiver, 2)
		same("selected", bodies(found), "much red")
		for _, message := range found {
			if string(message.Body) == "much" {
				same("set by the action", message.ApplicationProperties["seen"], any("yes"))
			}
		}
		w.none(receiver)
	}
	return "by the administration client; the SDK has no rule manager over AMQP"
}

func duplicates(w *world, isPartitioned bool) {
	at := w.open(w.queue(isPartitioned, func(p *admin.QueueProperties) { p.RequiresDuplicateDetection = ptr(true) }))
	for _, id := range []string{"a", "b", "a", "a"} {
		check(at.sender.SendMessage(w.ctx, &azservicebus.Message{Body: []byte(id), MessageID: ptr(id)}, nil))
	}
	found := w.receive(at.receiver, 2)
	same("bodies", bodies(found), "a b")
	w.none(at.receiver)
}

func large(w *world) string {
	manager := must(admin.NewClientFromConnectionString(premiumString, nil))
	queue := w.newName()
	must(manager.CreateQueue(w.ctx, queue, &admin.CreateQueueOptions{
		Properties: &admin.QueueProperties{MaxMessageSizeInKilobytes: ptr(int64(20480))},
	}))
	client := w.client(premiumString, nil)
	sender := must(client.NewSender(queue, nil))
	receiver := must(client.NewReceiverForQueue(queue, nil))
	body := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16)
	check(sender.SendMessage(w.ctx, &azservicebus.Message{Body: body}, nil))
	got := w.one(receiver)
	same("body", bytes.Equal(got.Body, body), true)
	check(receiver.CompleteMessage(w.ctx, got, nil))
	err := sender.SendMessage(w.ctx, &azservicebus.Message{Body: bytes.Repeat([]byte("x"), 21<<20)}, nil)
	if !errors.Is(err, azservicebus.ErrMessageTooLarge) {
		panic(failure{fmt.Sprintf("%v instead of ErrMessageTooLarge", err)})
	}
	return "10 MiB in Premium; 21 MiB is refused where 20 MiB are allowed"
}

func overWebSocket(w *world) string {
	queue := w.queue(false, nil)
	w.roundTrip(w.client(connectionString, &azservicebus.ClientOptions{NewWebSocketConn: dialWebSocket}), queue)
	return "wss, with the subprotocol amqp"
}

func dialWebSocket(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
	socket, _, err := websocket.Dial(ctx, args.Host, &websocket.DialOptions{Subprotocols: []string{"amqp"}})
	if err != nil {
		return nil, err
	}
	return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
}

func overTLS(w *world) string {
	// With a port in the endpoint the SDK would look for the port in the certificate too.
	host := regexp.MustCompile(`(sb://[^:;/]+):(\d+)`)
	found := host.FindStringSubmatch(tlsString)
	options := &azservicebus.ClientOptions{CustomEndpoint: strings.TrimPrefix(found[0], "sb://")}
	w.roundTrip(w.client(host.ReplaceAllString(tlsString, "$1"), options), w.queue(false, nil))
	return "trusted by SSL_CERT_FILE"
}

func (w *world) roundTrip(client *azservicebus.Client, queue string) {
	sender := must(client.NewSender(queue, nil))
	receiver := must(client.NewReceiverForQueue(queue, nil))
	body := strings.Repeat("round trip ", 10_000)
	w.send(sender, body)
	got := w.one(receiver)
	same("length", len(got.Body), len(body))
	check(receiver.CompleteMessage(w.ctx, got, nil))
}
