// Topics, subscriptions and rules through the administration client (R29, R30, R31).

import assert from "node:assert/strict";
import { test } from "node:test";

import { newAdministration, newName } from "./bus.mjs";

/** Runs `scenario` with a fresh topic, which is gone afterwards. */
async function withTopic(scenario, options = {}) {
  const administration = newAdministration();
  const topic = newName();
  await administration.createTopic(topic, options);
  try {
    await scenario({ administration, topic });
  } finally {
    await administration.deleteTopic(topic);
  }
}

async function namesOf(list, key = "name") {
  const names = [];
  for await (const one of list) names.push(one[key]);
  return names;
}

test("a topic keeps the properties it was made with, and is updated", () =>
  withTopic(
    async ({ administration, topic }) => {
      const found = await administration.getTopic(topic);
      assert.equal(found.name, topic);
      assert.equal(found.enablePartitioning, false);
      assert.equal(found.supportOrdering, true);
      assert.equal(found.requiresDuplicateDetection, true);
      assert.equal(found.duplicateDetectionHistoryTimeWindow, "PT5M");
      assert.equal(found.userMetadata, "<kept> & 'so'");

      found.defaultMessageTimeToLive = "P2D";
      found.status = "SendDisabled";
      await administration.updateTopic(found);

      const again = await administration.getTopic(topic);
      assert.equal(again.defaultMessageTimeToLive, "P2D");
      assert.equal(again.status, "SendDisabled");
      assert.ok((await namesOf(administration.listTopics())).includes(topic));
      assert.equal(await administration.topicExists(topic), true);
    },
    {
      enablePartitioning: false,
      requiresDuplicateDetection: true,
      duplicateDetectionHistoryTimeWindow: "PT5M",
      userMetadata: "<kept> & 'so'",
    },
  ));

test("a subscription keeps the properties it was made with, and is updated and deleted", () =>
  withTopic(async ({ administration, topic }) => {
    await administration.createSubscription(topic, "Sport", {
      lockDuration: "PT45S",
      requiresSession: true,
      deadLetteringOnFilterEvaluationExceptions: false,
      maxDeliveryCount: 4,
    });
    const found = await administration.getSubscription(topic, "sport");
    assert.equal(found.topicName, topic);
    assert.equal(found.subscriptionName, "Sport");
    assert.equal(found.lockDuration, "PT45S");
    assert.equal(found.requiresSession, true);
    assert.equal(found.deadLetteringOnFilterEvaluationExceptions, false);

    found.maxDeliveryCount = 9;
    await administration.updateSubscription(found);

    assert.equal((await administration.getSubscription(topic, "Sport")).maxDeliveryCount, 9);
    await assert.rejects(administration.createSubscription(topic, "SPORT"), {
      code: "MessageEntityAlreadyExistsError",
    });
    await administration.deleteSubscription(topic, "Sport");
    assert.equal(await administration.subscriptionExists(topic, "Sport"), false);
  }));

test("subscriptions and rules are listed over pages", () =>
  withTopic(async ({ administration, topic }) => {
    const names = ["a", "b", "c", "d", "e"];
    for (const name of names) await administration.createSubscription(topic, name);
    const pages = [];
    for await (const page of administration.listSubscriptions(topic).byPage({ maxPageSize: 2 })) {
      pages.push(page.map((one) => one.subscriptionName));
    }
    assert.deepEqual(pages, [["a", "b"], ["c", "d"], ["e"]]);
    for (const name of names) await administration.createRule(topic, "a", name);
    assert.deepEqual(await namesOf(administration.listRules(topic, "a")), ["$Default", ...names]);
  }));

test("a rule of each kind is kept as it was given", () =>
  withTopic(async ({ administration, topic }) => {
    await administration.createSubscription(topic, "s");
    const date = new Date("2026-11-15T12:30:15.250Z");
    await administration.createRule(
      topic,
      "s",
      "sql",
      { sqlExpression: "amount > @low", sqlParameters: { "@low": 5 } },
      { sqlExpression: "SET tag = @word", sqlParameters: { "@word": "big" } },
    );
    await administration.createRule(topic, "s", "same", {
      subject: "x",
      to: "y",
      applicationProperties: { text: "a <b>", half: 0.5, flag: true, date },
    });

    const byDefault = await administration.getRule(topic, "s", "$Default");
    assert.equal(byDefault.filter.sqlExpression, "1=1");
    const sql = await administration.getRule(topic, "s", "sql");
    assert.equal(sql.filter.sqlExpression, "amount > @low");
    assert.deepEqual(sql.filter.sqlParameters, { "@low": 5 });
    assert.equal(sql.action.sqlExpression, "SET tag = @word");
    assert.deepEqual(sql.action.sqlParameters, { "@word": "big" });
    const same = await administration.getRule(topic, "s", "same");
    assert.equal(same.filter.subject, "x");
    assert.equal(same.filter.to, "y");
    assert.deepEqual(same.filter.applicationProperties, {
      text: "a <b>",
      half: 0.5,
      flag: true,
      date,
    });

    sql.filter = { correlationId: "c" };
    await administration.updateRule(topic, "s", sql);
    assert.equal((await administration.getRule(topic, "s", "sql")).filter.correlationId, "c");
    await administration.deleteRule(topic, "s", "$Default");
    assert.equal(await administration.ruleExists(topic, "s", "$Default"), false);
    await assert.rejects(administration.createRule(topic, "s", "bad", { sqlExpression: "a >" }), {
      code: "ServiceError",
    });
  }));

test("a subscription can be made with a rule of its own", () =>
  withTopic(async ({ administration, topic }) => {
    await administration.createSubscription(topic, "s", {
      defaultRuleOptions: { name: "own", filter: { sqlExpression: "a = 1" } },
    });
    const rules = [];
    for await (const rule of administration.listRules(topic, "s")) rules.push(rule);
    assert.deepEqual(
      rules.map((rule) => [rule.name, rule.filter.sqlExpression]),
      [["own", "a = 1"]],
    );
  }));

test("runtime properties of topics and subscriptions are read", () =>
  withTopic(async ({ administration, topic }) => {
    await administration.createSubscription(topic, "s");
    const ofTopic = await administration.getTopicRuntimeProperties(topic);
    assert.equal(ofTopic.subscriptionCount, 1);
    assert.equal(ofTopic.scheduledMessageCount, 0);
    assert.equal(ofTopic.sizeInBytes, 0);
    const ofSubscription = await administration.getSubscriptionRuntimeProperties(topic, "s");
    assert.equal(ofSubscription.totalMessageCount, 0);
    assert.equal(ofSubscription.activeMessageCount, 0);
    assert.ok(ofSubscription.createdAt > new Date(Date.now() - 600_000));
  }));
